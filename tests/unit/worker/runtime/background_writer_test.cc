#include "worker/runtime/background_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"

namespace penstock::worker {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

TEST(BackgroundWriter, RunsTasksInOrderWhileTheCallerGoesOn) {
  BackgroundWriter writer;
  absl::Notification may_end;
  std::vector<int> done;
  writer.Add([&] {
    may_end.WaitForNotification();
    done.push_back(1);
    return absl::OkStatus();
  });
  writer.Add([&] {
    done.push_back(2);
    return absl::OkStatus();
  });
  EXPECT_TRUE(writer.busy());
  EXPECT_TRUE(absl::IsDeadlineExceeded(writer.Wait(absl::ZeroDuration())));
  may_end.Notify();
  EXPECT_TRUE(writer.Wait(kLong).ok());
  EXPECT_FALSE(writer.busy());
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

TEST(BackgroundWriter, TheFirstErrorStaysAndEndsTheTasksBehindIt) {
  BackgroundWriter writer;
  absl::Notification may_end;
  writer.Add([&] {
    may_end.WaitForNotification();
    return absl::ResourceExhaustedError("the disk is full");
  });
  bool later = false;
  const auto set_later = [&] {
    later = true;
    return absl::OkStatus();
  };
  writer.Add(set_later);
  EXPECT_TRUE(writer.status().ok());
  may_end.Notify();
  EXPECT_EQ(writer.Wait(kLong), absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(writer.status(), absl::ResourceExhaustedError("the disk is full"));
  writer.Add(set_later);
  EXPECT_FALSE(writer.busy());
  EXPECT_FALSE(later);
}

TEST(BackgroundWriter, WhatATaskHeldIsGoneWhenItCountsAsDone) {
  BackgroundWriter writer;
  auto held = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = held;
  writer.Add([held = std::move(held)] { return absl::OkStatus(); });
  EXPECT_TRUE(writer.Wait(kLong).ok());
  EXPECT_TRUE(watched.expired());
}

TEST(BackgroundWriter, EndsWithTheTaskThatRuns) {
  bool first = false;
  absl::Notification runs;
  {
    BackgroundWriter writer;
    writer.Add([&] {
      runs.Notify();
      first = true;
      return absl::OkStatus();
    });
    runs.WaitForNotification();
  }
  EXPECT_TRUE(first);
}

}  // namespace
}  // namespace penstock::worker
