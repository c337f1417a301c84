#include "worker/device/simulated/timeline.h"

#include <gtest/gtest.h>

#include <thread>

namespace penstock::worker {
namespace {

// compute: 0, 1, 3; previous: 2; 3 waits for 2.
Program SmallProgram() {
  Program program;
  program.instructions = {{.id = 0, .op = Op::kLoad},
                          {.id = 1, .op = Op::kForward},
                          {.id = 2, .op = Op::kRecv, .stream = Stream::kPrevious},
                          {.id = 3, .op = Op::kWait, .deps = {2}}};
  return program;
}

TEST(TimelineTest, AnInstructionIsReadyWhenItsStreamIs) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 100);
  EXPECT_EQ(*timeline.Ready(0), 100);
  EXPECT_EQ(*timeline.Ready(2), 100) << "streams run side by side";
  timeline.End(0, 100, 130);
  EXPECT_EQ(*timeline.Ready(1), 130);
}

TEST(TimelineTest, AnInstructionIsReadyWhenItsDepsHaveEnded) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 0);
  timeline.End(0, 0, 0);
  timeline.End(1, 0, 50);
  timeline.End(2, 20, 70);
  EXPECT_EQ(*timeline.Ready(3), 70);
}

TEST(TimelineTest, TheLastEndOfAllStreamsCounts) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 5);
  EXPECT_EQ(timeline.end_ns(), 5);
  timeline.End(2, 20, 70);
  timeline.End(0, 5, 30);
  EXPECT_EQ(timeline.end_ns(), 70);
  EXPECT_EQ(timeline.At(2)->start_ns, 20);
  EXPECT_FALSE(timeline.At(1).has_value());
}

TEST(TimelineTest, WaitsForWhatEndsOnAnotherThread) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 0);
  timeline.End(0, 0, 0);
  timeline.End(1, 0, 0);
  std::thread link([&] { timeline.End(2, 0, 9); });
  EXPECT_EQ(*timeline.Ready(3), 9);
  link.join();
}

TEST(TimelineTest, WhatWaitsForAFailureFailsWithIt) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 0);
  timeline.End(0, 0, 0);
  timeline.End(1, 0, 0);
  std::thread link([&] { timeline.Fail(2, absl::UnavailableError("rank 1 is gone")); });
  EXPECT_EQ(timeline.Ready(3).status(), absl::UnavailableError("rank 1 is gone"));
  EXPECT_EQ(timeline.Await(2), absl::UnavailableError("rank 1 is gone"));
  EXPECT_TRUE(timeline.Ready(1).ok());
  link.join();
}

TEST(TimelineTest, CancelEndsEveryWait) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 0);
  std::thread other([&] { timeline.Cancel(absl::CancelledError("stop")); });
  EXPECT_EQ(timeline.Await(2), absl::CancelledError("stop"));
  EXPECT_EQ(timeline.Ready(1).status(), absl::CancelledError("stop"));
  EXPECT_EQ(timeline.Ready(0).status(), absl::CancelledError("stop"));
  other.join();
}

TEST(TimelineTest, EveryIterationStartsAnew) {
  Timeline timeline;
  timeline.Start(SmallProgram(), 0);
  for (uint32_t id = 0; id < 4; ++id) timeline.End(id, 0, 10);
  timeline.Start(SmallProgram(), 10);
  EXPECT_EQ(*timeline.Ready(0), 10);
  EXPECT_EQ(timeline.end_ns(), 10);
  EXPECT_FALSE(timeline.At(3).has_value());
}

}  // namespace
}  // namespace penstock::worker
