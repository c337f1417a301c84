// Tasks of a planning pool that begin when there is memory for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/service/planning_pool_fixture.h"

namespace penstock {
namespace {

TEST_F(PlanningPoolTest, ATaskBeginsWhenThereIsMemoryForItBesideThoseThatRun) {
  PlanningPool pool(3, 10, &clock_, /*memory_bytes=*/100);
  Event held, go_on, small, large;
  Run(pool, {kJobBatch, "a", absl::InfiniteDuration(), 60}, [&](const PlanningTicket&) {
    held.Notify();
    go_on.Await();
  });
  ASSERT_TRUE(held.Await());
  std::atomic<bool> large_ran = false;
  Run(pool, {kPreparation, "b", absl::InfiniteDuration(), 50}, [&](const PlanningTicket&) {
    large_ran = true;
    large.Notify();
  });
  Run(pool, {kWhatIf, "c", absl::InfiniteDuration(), 20}, [&](const PlanningTicket&) { small.Notify(); });
  ASSERT_TRUE(small.Await());
  EXPECT_FALSE(large_ran);
  go_on.Notify();
  EXPECT_TRUE(large.Await());
}

TEST_F(PlanningPoolTest, ATaskThatTakesMoreThanThereIsRunsAlone) {
  PlanningPool pool(2, 10, &clock_, /*memory_bytes=*/100);
  Event ran;
  Run(pool, {kJobBatch, "a", absl::InfiniteDuration(), 1000}, [&](const PlanningTicket&) { ran.Notify(); });
  EXPECT_TRUE(ran.Await());
}

// Else it would never begin where there is always a small one.
TEST_F(PlanningPoolTest, ATaskThatTakesNearlyAllThatThereIsBeginsBesideASmallOne) {
  Event held, go_on, ran, small;
  PlanningPool pool(3, 10, &clock_, /*memory_bytes=*/800);
  Run(pool, {.owner = "small", .bytes = 40}, [&](const PlanningTicket&) {
    held.Notify();
    go_on.Await();
  });
  ASSERT_TRUE(held.Await());
  Run(pool, {.owner = "large", .bytes = 790}, [&](const PlanningTicket&) {
    ran.Notify();
    go_on.Await();
  });
  EXPECT_TRUE(ran.Await());
  Run(pool, {.owner = "small", .bytes = 40}, [&](const PlanningTicket&) { small.Notify(); });
  EXPECT_TRUE(small.Await());
  go_on.Notify();
  go_on.Notify();
}

TEST_F(PlanningPoolTest, NothingPassesATaskThatHasWaitedForMemoryForLong) {
  PlanningPool pool(2, 100, &clock_, /*memory_bytes=*/100);
  Event held, go_on;
  Run(pool, {kWhatIf, "a", absl::InfiniteDuration(), 60}, [&](const PlanningTicket&) {
    held.Notify();
    go_on.Await();
  });
  ASSERT_TRUE(held.Await());
  // Of another class than the one that waits for memory, so that they may pass it.
  Event large;
  Run(pool, {kJobBatch, "b", absl::InfiniteDuration(), 50}, [&](const PlanningTicket&) { large.Notify(); });
  std::atomic<int> small = 0;
  Event last;
  for (int i = 0; i < 40; ++i) {
    Run(pool, {kPreparation, "c", absl::InfiniteDuration(), 10}, [&](const PlanningTicket&) {
      if (++small == 40) last.Notify();
    });
  }
  go_on.Notify();
  EXPECT_TRUE(large.Await());
  EXPECT_TRUE(last.Await());
}

TEST_F(PlanningPoolTest, APreparationAndAWhatIfNeverKeepEachOtherFromBeginning) {
  PlanningPool pool(3, 10, &clock_);
  Hold(pool, kPreparation);
  Add(pool, kPreparation, "other", "preparation");
  Event ran;
  Run(pool, {kWhatIf, "host"}, [&](const PlanningTicket&) { ran.Notify(); });
  EXPECT_TRUE(ran.Await());
  EXPECT_EQ(pool.depth(), 1);
  EXPECT_THAT(Order(pool), testing::ElementsAre("preparation"));
}

TEST_F(PlanningPoolTest, WhatTakesMostIsStoppedWhenMemoryRunsOut) {
  PlanningPool pool(2, 10, &clock_);
  EXPECT_FALSE(pool.StopLargest());
  Event started_large, started_small, ended, go_on;
  absl::Status told;
  Run(pool, {kJobBatch, "a", absl::InfiniteDuration(), 50}, [&](const PlanningTicket& ticket) {
    started_large.Notify();
    ComputeUntilStopped(ticket);
    told = ticket.Explain(ticket.stop().status());
    ended.Notify();
  });
  std::atomic<bool> small_stopped = false;
  Run(pool, {kJobBatch, "b", absl::InfiniteDuration(), 10}, [&](const PlanningTicket& ticket) {
    started_small.Notify();
    go_on.Await();
    small_stopped = ticket.stop().stopped();
  });
  ASSERT_TRUE(started_large.Await());
  ASSERT_TRUE(started_small.Await());
  EXPECT_TRUE(pool.StopLargest());
  ASSERT_TRUE(ended.Await());
  EXPECT_THAT(told, Fails(absl::StatusCode::kResourceExhausted, "--memory"));
  go_on.Notify();
  pool.Shutdown(absl::Seconds(20));
  EXPECT_FALSE(small_stopped);
}

}  // namespace
}  // namespace penstock
