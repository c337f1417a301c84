// Tasks of a planning pool that wait while it is the turn of others.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/service/planning_pool_fixture.h"

namespace penstock {
namespace {

TEST_F(PlanningPoolTest, ALongTaskWaitsWhileItIsAnOthersTurnAndGoesOn) {
  PlanningPool pool(1, 20, &clock_);
  LongTask task(&clock_);
  Run(pool, {.owner = "long"}, task.AsTask());
  task.AwaitSteps(100);
  Hold(pool);
  // It may be in the middle of a step.
  const int64_t before = task.steps();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_LE(task.steps(), before + 1);
  go_on_.Notify();
  task.AwaitSteps(100);
  task.End();
  EXPECT_TRUE(task.AwaitEnd().ok());
}

TEST_F(PlanningPoolTest, ATaskIsNotPausedWhileNobodyElseWaits) {
  PlanningPool pool(1, 20, &clock_);
  LongTask task(&clock_);
  Run(pool, {.owner = "long"}, task.AsTask());
  for (int i = 0; i < 10; ++i) {
    task.AwaitSteps(100);
    pool.StopOverdue();
  }
  task.End();
  EXPECT_TRUE(task.AwaitEnd().ok());
}

TEST_F(PlanningPoolTest, ASmallTaskWaitsForNoLargeOneAndNoRoomOfOne) {
  PlanningPool pool(1, 20, &clock_, /*memory_bytes=*/320);
  LongTask task(&clock_);
  Run(pool, {.owner = "long", .bytes = 280}, task.AsTask());
  task.AwaitSteps(100);
  std::atomic<bool> large = false;
  Run(pool, {.owner = "large", .bytes = 17}, [&](const PlanningTicket&) { large = true; });
  for (int i = 0; i < 40; ++i) {
    Event ran;
    Run(pool, {.owner = "small", .bytes = 16}, [&](const PlanningTicket&) { ran.Notify(); });
    ASSERT_TRUE(ran.Await());
  }
  EXPECT_FALSE(large) << "an eighth is left to small ones";
  task.End();
  EXPECT_TRUE(task.AwaitEnd().ok());
  pool.Shutdown(absl::Seconds(20));
  EXPECT_TRUE(large);
}

// Else there would never be room for a large batch where what-ifs come all the time.
TEST_F(PlanningPoolTest, SmallWhatIfsTakeNoRoomThatABatchWaitsFor) {
  PlanningPool pool(1, 100, &clock_, /*memory_bytes=*/400);
  LongTask first(&clock_);
  Run(pool, {.kind = kWhatIf, .owner = "first", .bytes = 200}, first.AsTask());
  first.AwaitSteps(100);
  std::atomic<bool> large = false;
  std::atomic<int> before = 0, what_ifs = 0;
  Run(pool, {.owner = "large", .bytes = 300}, [&](const PlanningTicket&) { large = true; });
  for (int i = 0; i < 40; ++i) {
    Run(pool, {.kind = kWhatIf, .owner = absl::StrCat("owner ", i), .bytes = 20}, [&](const PlanningTicket&) {
      before += large ? 0 : 1;
      ++what_ifs;
    });
  }
  // Turns in which the batch is passed over for want of room.
  for (int i = 0; i < 40; ++i) {
    Event ran;
    Run(pool, {.owner = "small", .bytes = 20}, [&](const PlanningTicket&) { ran.Notify(); });
    ASSERT_TRUE(ran.Await());
  }
  EXPECT_FALSE(large);
  first.End();
  EXPECT_TRUE(first.AwaitEnd().ok());
  pool.Shutdown(absl::Seconds(20));
  EXPECT_TRUE(large);
  EXPECT_EQ(what_ifs, 40);
  // As many as turns that a batch is passed over at most.
  EXPECT_LE(before, 16);
}

TEST_F(PlanningPoolTest, ABatchGoesBeforeAWhatIfThatRuns) {
  PlanningPool pool(1, 20, &clock_);
  LongTask what_if(&clock_);
  Run(pool, {.kind = kWhatIf, .owner = "host"}, what_if.AsTask());
  what_if.AwaitSteps(100);
  Hold(pool);
  go_on_.Notify();
  what_if.AwaitSteps(100);
  what_if.End();
  EXPECT_TRUE(what_if.AwaitEnd().ok());
}

TEST_F(PlanningPoolTest, ATaskThatIsPausedIsStoppedAsOneThatRuns) {
  Event held, go_on;
  PlanningPool pool(1, 20, &clock_);
  LongTask cancelled(&clock_), stopped(&clock_);
  const PlanningTicketPtr ticket =
      Run(pool, {.owner = "a", .limit = absl::InfiniteDuration(), .bytes = 10}, cancelled.AsTask());
  cancelled.AwaitSteps(100);
  Hold(pool);
  pool.Cancel(ticket);
  EXPECT_THAT(cancelled.AwaitEnd(), Fails(absl::StatusCode::kCancelled, "client"));
  go_on_.Notify();
  Run(pool, {.owner = "b", .limit = absl::InfiniteDuration(), .bytes = 10}, stopped.AsTask());
  stopped.AwaitSteps(100);
  Run(pool, {.owner = "c"}, [&](const PlanningTicket&) {
    held.Notify();
    go_on.Await();
  });
  ASSERT_TRUE(held.Await());
  // The first one may not be out of the books yet, and is waited for.
  while (!stopped.ended()) EXPECT_TRUE(pool.StopLargest());
  EXPECT_THAT(stopped.AwaitEnd(), Fails(absl::StatusCode::kResourceExhausted, "--memory"));
  go_on.Notify();
}

TEST_F(PlanningPoolTest, ShutdownStopsWhatIsPaused) {
  PlanningPool pool(1, 20, &clock_);
  LongTask first(&clock_), second(&clock_);
  Run(pool, {.owner = "a"}, first.AsTask());
  first.AwaitSteps(100);
  Run(pool, {.owner = "b"}, second.AsTask());
  second.AwaitSteps(100);
  pool.Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(absl::IsUnavailable(first.AwaitEnd()));
  EXPECT_TRUE(absl::IsUnavailable(second.AwaitEnd()));
}

TEST_F(PlanningPoolTest, WhileATaskIsPausedItsLimitIsNotUsedUp) {
  PlanningPool pool(1, 20, &clock_);
  // The task makes its clock run much faster than it is.
  LongTask task(&clock_);
  Run(pool, {.owner = "a", .limit = absl::Hours(10)}, task.AsTask());
  task.AwaitSteps(100);
  Hold(pool);
  clock_.Advance(absl::Hours(1000));
  pool.StopOverdue();
  go_on_.Notify();
  task.AwaitSteps(100);
  pool.StopOverdue();
  EXPECT_FALSE(task.ended());
  // Not while it is paused, for the other one to end.
  while (!task.ended()) {
    clock_.Advance(absl::Hours(10));
    pool.StopOverdue();
    std::this_thread::yield();
  }
  EXPECT_THAT(task.AwaitEnd(), Fails(absl::StatusCode::kDeadlineExceeded, "--planning-limit-seconds"));
}

// By the clocks of their threads.
TEST_F(PlanningPoolTest, LongTasksOfSeveralOwnersComputeInTurns) {
  const MachineClock clock;
  PlanningPool pool(1, 20, &clock);
  std::atomic<bool> end = false;
  std::array<std::atomic<int64_t>, 3> steps = {};
  for (size_t i = 0; i < steps.size(); ++i) {
    Run(pool, {.owner = absl::StrCat("owner ", i)}, [&end, &own = steps[i]](const PlanningTicket& ticket) {
      while (!ticket.stop().stopped() && !end) ++own;
    });
  }
  const auto all_go_on = [&] {
    return std::ranges::all_of(steps, [](const std::atomic<int64_t>& own) { return own > 1000; });
  };
  while (!all_go_on()) pool.StopOverdue();
  end = true;
  pool.Shutdown(absl::Seconds(20));
}

}  // namespace
}  // namespace penstock
