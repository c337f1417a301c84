#include "planner/service/engine/planning_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/service/engine/fake_clock.h"
#include "tests/unit/service/event.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

constexpr PlanningClass kJobBatch = PlanningClass::kJobBatch;
constexpr PlanningClass kPreparation = PlanningClass::kPreparation;
constexpr PlanningClass kWhatIf = PlanningClass::kWhatIf;

// As a plan does it.
void ComputeUntilStopped(const PlanningTicket& ticket) {
  while (!ticket.stop().stopped()) std::this_thread::yield();
}

class PlanningPoolTest : public testing::Test {
 protected:
  PlanningTicketPtr Run(PlanningPool& pool, PlanningWork work, PlanningPool::Task task) {
    EXPECT_TRUE(pool.TryReserve(work.kind, work.owner, 1));
    return pool.Run(std::move(work), std::move(task));
  }

  // A task that holds a thread of the pool until go_on_; runs when this returns.
  void Hold(PlanningPool& pool, PlanningClass kind = kJobBatch) {
    Run(pool, {kind, "holder"}, [this](const PlanningTicket&) {
      held_.Notify();
      go_on_.Await();
    });
    ASSERT_TRUE(held_.Await());
  }

  // A task that writes down its name.
  void Add(PlanningPool& pool, PlanningClass kind, const std::string& owner, const std::string& name) {
    Run(pool, {kind, owner}, [this, name](const PlanningTicket& ticket) {
      MutexLock lock(&mutex_);
      order_.push_back(ticket.status().ok() ? name : "stopped " + name);
    });
  }

  void AddForJob(PlanningPool& pool, const std::string& owner, const std::string& job,
                 const std::string& name) {
    Run(pool, {.owner = owner, .job = job}, [this, name](const PlanningTicket&) {
      MutexLock lock(&mutex_);
      order_.push_back(name);
    });
  }

  // The names in the order in which the tasks ran, once all have.
  std::vector<std::string> Order(PlanningPool& pool) {
    go_on_.Notify();
    pool.Shutdown(absl::Seconds(20));
    MutexLock lock(&mutex_);
    return order_;
  }

  FakeClock clock_;
  Event held_, go_on_;
  Mutex mutex_;
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(PlanningPoolTest, RunsTheTasksOfAnOwnerInTheOrderInWhichTheyCame) {
  PlanningPool pool(1, 10, &clock_);
  Hold(pool);
  for (const char* name : {"a", "b", "c"}) Add(pool, kJobBatch, "job", name);
  EXPECT_THAT(Order(pool), testing::ElementsAre("a", "b", "c"));
}

TEST_F(PlanningPoolTest, OwnersTakeTurns) {
  PlanningPool pool(1, 20, &clock_);
  Hold(pool);
  for (const char* name : {"a1", "a2", "a3", "a4"}) Add(pool, kJobBatch, "a", name);
  for (const char* name : {"b1", "b2"}) Add(pool, kJobBatch, "b", name);
  Add(pool, kJobBatch, "c", "c1");
  EXPECT_THAT(Order(pool), testing::ElementsAre("a1", "b1", "c1", "a2", "b2", "a3", "a4"));
}

TEST_F(PlanningPoolTest, AnOwnerWithManyJobsHasOneOwnersTurnsAndItsJobsTakeTurnsWithEachOther) {
  PlanningPool pool(1, 20, &clock_);
  Hold(pool);
  for (const char* name : {"a1", "a2"}) AddForJob(pool, "x", "a", name);
  for (const char* name : {"b1", "b2"}) AddForJob(pool, "x", "b", name);
  for (const char* name : {"c1", "c2", "c3"}) AddForJob(pool, "y", "c", name);
  EXPECT_THAT(Order(pool), testing::ElementsAre("a1", "c1", "b1", "c2", "a2", "c3", "b2"));
}

TEST_F(PlanningPoolTest, AnOwnerWhosePlansTakeLongHasFewerOfThem) {
  PlanningPool pool(1, 20, &clock_);
  Hold(pool);
  const auto add = [&](const std::string& owner, const std::string& name, absl::Duration takes) {
    Run(pool, {.owner = owner}, [this, name, takes](const PlanningTicket&) {
      {
        MutexLock lock(&mutex_);
        order_.push_back(name);
      }
      clock_.Compute(takes);
    });
  };
  // None has as much as the other when one is chosen: whose turn it is then depends on pauses.
  for (const char* name : {"long 1", "long 2", "long 3"}) add("long", name, absl::Milliseconds(3100));
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) add("short", name, absl::Seconds(1));
  EXPECT_THAT(Order(pool),
              testing::ElementsAre("long 1", "a", "b", "c", "d", "long 2", "e", "f", "g", "long 3"));
}

TEST_F(PlanningPoolTest, WhatATaskComputesCountsAndNotHowLongItHoldsItsThread) {
  std::map<std::string, absl::Duration> computed;
  PlanningPool pool(1, 20, &clock_, INT64_MAX, [&](const PlanningWork& work, absl::Duration time) {
    MutexLock lock(&mutex_);
    computed[work.owner] += time;
  });
  Hold(pool);
  const auto add = [&](const std::string& owner, absl::Duration computes, absl::Duration waits) {
    Run(pool, {.owner = owner}, [this, owner, computes, waits](const PlanningTicket&) {
      {
        MutexLock lock(&mutex_);
        order_.push_back(owner);
      }
      clock_.Compute(computes);
      clock_.Advance(waits);
    });
  };
  for (int i = 0; i < 5; ++i) add("waits", absl::Seconds(1), absl::Seconds(60));
  for (int i = 0; i < 2; ++i) add("computes", absl::Milliseconds(2500), absl::ZeroDuration());
  EXPECT_THAT(Order(pool),
              testing::ElementsAre("waits", "computes", "waits", "waits", "computes", "waits", "waits"));
  MutexLock lock(&mutex_);
  EXPECT_EQ(computed["waits"], absl::Seconds(5));
  EXPECT_EQ(computed["computes"], absl::Seconds(5));
}

// A task that computes a millisecond after the other until it is told to end, or stopped.
class LongTask {
 public:
  explicit LongTask(FakeClock* clock) : clock_(clock) {}

  PlanningPool::Task AsTask() {
    return [this](const PlanningTicket& ticket) {
      while (!ticket.stop().stopped() && !end_) {
        clock_->Compute(absl::Milliseconds(1));
        ++steps_;
      }
      told_ = ticket.Explain(ticket.stop().status());
      has_ended_ = true;
      ended_.Notify();
    };
  }

  int64_t steps() const { return steps_; }
  void AwaitSteps(int64_t more) const {
    for (const int64_t before = steps_; steps_ < before + more;) std::this_thread::yield();
  }
  void End() { end_ = true; }
  bool ended() const { return has_ended_; }
  absl::Status AwaitEnd() {
    EXPECT_TRUE(ended_.Await());
    return told_;
  }

 private:
  FakeClock* const clock_;
  std::atomic<int64_t> steps_ = 0;
  std::atomic<bool> end_ = false;
  std::atomic<bool> has_ended_ = false;
  absl::Status told_;
  Event ended_;
};

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

TEST_F(PlanningPoolTest, WhatIfsHaveAnEighthOfTheTimeWhileBatchesWait) {
  PlanningPool pool(1, 100, &clock_);
  Hold(pool);
  const auto add = [&](PlanningClass kind, const std::string& name, absl::Duration takes) {
    Run(pool, {.kind = kind, .owner = name}, [this, name, takes](const PlanningTicket&) {
      {
        MutexLock lock(&mutex_);
        order_.push_back(name);
      }
      clock_.Compute(takes);
    });
  };
  for (int i = 0; i < 40; ++i) add(kJobBatch, "batch", absl::Seconds(1));
  for (int i = 0; i < 3; ++i) add(kWhatIf, "what-if", absl::Seconds(3));
  std::vector<size_t> what_ifs;
  const std::vector<std::string> order = Order(pool);
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] == "what-if") what_ifs.push_back(i);
  // How long it takes is known from the first one on.
  ASSERT_EQ(what_ifs.size(), 3);
  EXPECT_GE(what_ifs[1] - what_ifs[0], 21);
}

TEST_F(PlanningPoolTest, WhoComesAnewIsNextAndHasNothingSaved) {
  PlanningPool pool(1, 20, &clock_);
  Event first, came;
  Run(pool, {.owner = "old"}, [&](const PlanningTicket&) {
    clock_.Compute(absl::Seconds(100));
    first.Notify();
    came.Await();
  });
  ASSERT_TRUE(first.Await());
  const auto add = [&](const std::string& owner, const std::string& name) {
    Run(pool, {.owner = owner}, [this, name](const PlanningTicket&) {
      {
        MutexLock lock(&mutex_);
        order_.push_back(name);
      }
      clock_.Compute(absl::Seconds(1));
    });
  };
  for (const char* name : {"old 1", "old 2"}) add("old", name);
  for (const char* name : {"new 1", "new 2", "new 3"}) add("new", name);
  came.Notify();
  // It owes nothing, and the other is behind by what it has computed since they are both there.
  EXPECT_THAT(Order(pool), testing::ElementsAre("new 1", "new 2", "new 3", "old 1", "old 2"));
}

TEST_F(PlanningPoolTest, ATaskOfOneOfAnOwnersJobsIsTakenOutOfItsLine) {
  PlanningPool pool(1, 20, &clock_);
  Hold(pool);
  AddForJob(pool, "x", "a", "a1");
  const PlanningTicketPtr given_up = Run(pool, {.owner = "x", .job = "b"}, [](const PlanningTicket&) {});
  AddForJob(pool, "x", "b", "b2");
  pool.Cancel(given_up);
  EXPECT_EQ(pool.depth(), 2);
  EXPECT_THAT(Order(pool), testing::ElementsAre("a1", "b2"));
}

TEST_F(PlanningPoolTest, BatchesOfJobsGoBeforePreparationsAndTheseBeforeWhatIfs) {
  PlanningPool pool(1, 10, &clock_);
  Hold(pool);
  Add(pool, kWhatIf, "host", "what-if");
  Add(pool, kPreparation, "new", "preparation");
  Add(pool, kJobBatch, "job", "batch 0");
  Add(pool, kJobBatch, "job", "batch 1");
  EXPECT_THAT(Order(pool), testing::ElementsAre("batch 0", "batch 1", "preparation", "what-if"));
}

// A preparation is next when it has been passed over 3 times, a what-if when it has been 7 times.
TEST_F(PlanningPoolTest, NobodyStarves) {
  PlanningPool pool(1, 100, &clock_);
  Hold(pool);
  for (int i = 0; i < 24; ++i) Add(pool, kJobBatch, "job", "batch");
  for (int i = 0; i < 2; ++i) Add(pool, kWhatIf, "host", "what-if");
  for (int i = 0; i < 4; ++i) Add(pool, kPreparation, "new", "preparation");
  const std::vector<std::string> order = Order(pool);
  ASSERT_EQ(order.size(), 30);
  std::vector<size_t> preparations, what_ifs;
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] == "preparation") preparations.push_back(i);
    if (order[i] == "what-if") what_ifs.push_back(i);
  }
  // The one at 7 is the what-if's turn, which comes before that of the preparation.
  EXPECT_THAT(preparations, testing::ElementsAre(3, 8, 12, 16));
  EXPECT_THAT(what_ifs, testing::ElementsAre(7, 15));
}

TEST_F(PlanningPoolTest, OneThreadOfSeveralIsForBatchesOfJobsAlone) {
  PlanningPool pool(2, 10, &clock_);
  Hold(pool, kWhatIf);
  Add(pool, kWhatIf, "other host", "what-if");
  Add(pool, kPreparation, "new", "preparation");
  Event ran;
  Run(pool, {kJobBatch, "job"}, [&](const PlanningTicket&) { ran.Notify(); });
  ASSERT_TRUE(ran.Await());
  EXPECT_EQ(pool.depth(), 2);
  EXPECT_THAT(Order(pool), testing::ElementsAre("preparation", "what-if"));
}

TEST_F(PlanningPoolTest, TakesAllPlacesOrNone) {
  PlanningPool pool(1, 6, &clock_);
  ASSERT_TRUE(pool.TryReserve(kJobBatch, "a", 3));
  ASSERT_TRUE(pool.TryReserve(kJobBatch, "b", 2));
  EXPECT_FALSE(pool.TryReserve(kJobBatch, "c", 2));
  EXPECT_TRUE(pool.TryReserve(kJobBatch, "c", 1));
  pool.Release(kJobBatch, "a", 2);
  EXPECT_TRUE(pool.TryReserve(kPreparation, "d", 2));
}

TEST_F(PlanningPoolTest, AnOwnerLeavesAQuarterOfThePlacesToOthers) {
  PlanningPool pool(1, 4, &clock_);
  Hold(pool);
  EXPECT_EQ(pool.most_of_owner(), 3);
  EXPECT_FALSE(pool.TryReserve(kJobBatch, "a", 4));
  Add(pool, kJobBatch, "a", "a1");
  ASSERT_TRUE(pool.TryReserve(kJobBatch, "a", 2));
  EXPECT_FALSE(pool.TryReserve(kJobBatch, "a", 1));
  pool.Release(kJobBatch, "a", 1);
  EXPECT_TRUE(pool.TryReserve(kJobBatch, "a", 1));
  EXPECT_TRUE(pool.TryReserve(kJobBatch, "b", 1));
  pool.Release(kJobBatch, "a", 2);
  EXPECT_THAT(Order(pool), testing::ElementsAre("a1"));
}

TEST_F(PlanningPoolTest, WhatIfsTogetherTakeHalfOfThePlacesAtMost) {
  PlanningPool pool(1, 4, &clock_);
  ASSERT_TRUE(pool.TryReserve(kWhatIf, "a", 1));
  EXPECT_FALSE(pool.TryReserve(kWhatIf, "b", 2));
  ASSERT_TRUE(pool.TryReserve(kWhatIf, "b", 1));
  EXPECT_FALSE(pool.TryReserve(kWhatIf, "c", 1));
  EXPECT_TRUE(pool.TryReserve(kJobBatch, "job", 2));
}

TEST_F(PlanningPoolTest, WaitingTasksCountAndRunningOnesDoNot) {
  PlanningPool pool(1, 1, &clock_);
  Hold(pool);
  EXPECT_EQ(pool.depth(), 0);
  Add(pool, kJobBatch, "job", "a");
  EXPECT_EQ(pool.depth(), 1);
  EXPECT_FALSE(pool.TryReserve(kJobBatch, "job", 1));
  go_on_.Notify();
}

TEST_F(PlanningPoolTest, CancelCallsATaskThatWaitsAtOnce) {
  PlanningPool pool(1, 10, &clock_);
  Hold(pool);
  absl::Status told;
  const auto ticket =
      Run(pool, {kWhatIf, "host"}, [&](const PlanningTicket& ticket) { told = ticket.status(); });
  Add(pool, kWhatIf, "host", "next");
  pool.Cancel(ticket);
  EXPECT_THAT(told, Fails(absl::StatusCode::kCancelled, "client"));
  EXPECT_EQ(pool.depth(), 1);
  pool.Cancel(ticket);  // nothing is left of it
  EXPECT_THAT(Order(pool), testing::ElementsAre("next"));
}

TEST_F(PlanningPoolTest, CancelStopsATaskThatRuns) {
  PlanningPool pool(1, 10, &clock_);
  Event started, ended;
  absl::Status told;
  const auto ticket = Run(pool, {kWhatIf, "host"}, [&](const PlanningTicket& ticket) {
    started.Notify();
    ComputeUntilStopped(ticket);
    told = ticket.Explain(ticket.stop().status());
    ended.Notify();
  });
  ASSERT_TRUE(started.Await());
  pool.Cancel(ticket);
  ASSERT_TRUE(ended.Await());
  EXPECT_THAT(told, Fails(absl::StatusCode::kCancelled, "client"));
}

TEST_F(PlanningPoolTest, ATaskIsStoppedWhenItHasComputedUpToItsLimit) {
  PlanningPool pool(1, 10, &clock_);
  Hold(pool);
  Event started, ended;
  absl::Status told;
  Run(pool, {kJobBatch, "job", absl::Seconds(10)}, [&](const PlanningTicket& ticket) {
    started.Notify();
    ComputeUntilStopped(ticket);
    told = ticket.Explain(ticket.stop().status());
    ended.Notify();
  });
  // Waiting does not count.
  clock_.Advance(absl::Seconds(100));
  pool.StopOverdue();
  go_on_.Notify();
  ASSERT_TRUE(started.Await());
  clock_.Advance(absl::Seconds(9));
  pool.StopOverdue();
  EXPECT_TRUE(told.ok());
  clock_.Advance(absl::Seconds(1));
  pool.StopOverdue();
  ASSERT_TRUE(ended.Await());
  EXPECT_THAT(told, Fails(absl::StatusCode::kDeadlineExceeded,
                          "after 10s, the limit of this planner (--planning-limit-seconds)"));
}

TEST_F(PlanningPoolTest, ShutdownRunsWhatWaitsWithinTheDrain) {
  std::atomic<int> ran = 0;
  PlanningPool pool(2, 100, &clock_);
  for (const PlanningClass kind : {kJobBatch, kPreparation, kWhatIf}) {
    for (int i = 0; i < 20; ++i) {
      Run(pool, {kind, "owner"}, [&](const PlanningTicket& ticket) { ran += ticket.status().ok() ? 1 : 0; });
    }
  }
  pool.Shutdown(absl::Seconds(20));
  EXPECT_EQ(ran, 60);
}

TEST_F(PlanningPoolTest, ShutdownStopsWhatWaitsAndWhatRunsWhenTheDrainIsOver) {
  PlanningPool pool(2, 10, &clock_);
  Event started;
  std::atomic<int> stopped = 0;
  for (int i = 0; i < 5; ++i) {
    Run(pool, {kJobBatch, "job"}, [&](const PlanningTicket& ticket) {
      started.Notify();
      ComputeUntilStopped(ticket);
      stopped += absl::IsUnavailable(ticket.status()) ? 1 : 0;
    });
  }
  ASSERT_TRUE(started.Await());
  pool.Shutdown(absl::ZeroDuration());  // would wait for ever if it only joined
  EXPECT_EQ(stopped, 5);
}

TEST_F(PlanningPoolTest, AfterShutdownNothingIsTaken) {
  PlanningPool pool(1, 10, &clock_);
  ASSERT_TRUE(pool.TryReserve(kJobBatch, "job", 1));
  pool.Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(pool.TryReserve(kJobBatch, "job", 1));
  absl::Status told;
  pool.Run({kJobBatch, "job"}, [&](const PlanningTicket& ticket) { told = ticket.status(); });
  EXPECT_THAT(told, Fails(absl::StatusCode::kUnavailable, "stops"));
}

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

// Thread sanitizer looks at this one.
TEST_F(PlanningPoolTest, EveryTaskIsCalledOnceWhoeverStopsIt) {
  constexpr int kTasks = 300;
  std::vector<std::atomic<int>> calls(kTasks);
  PlanningPool pool(3, kTasks, &clock_);
  std::vector<PlanningTicketPtr> tickets;
  for (int i = 0; i < kTasks; ++i) {
    const auto kind = static_cast<PlanningClass>(i % 2);
    tickets.push_back(Run(pool, {kind, std::to_string(i % 7), absl::Seconds(1)},
                          [&calls, i](const PlanningTicket&) { ++calls[i]; }));
    if (i % 3 == 0) pool.Cancel(tickets[i / 2]);
    if (i % 50 == 0) {
      clock_.Advance(absl::Seconds(1));
      pool.StopOverdue();
    }
  }
  std::thread canceller([&] {
    for (const PlanningTicketPtr& ticket : tickets) pool.Cancel(ticket);
  });
  pool.Shutdown(absl::Milliseconds(1));
  canceller.join();
  for (int i = 0; i < kTasks; ++i) EXPECT_EQ(calls[i], 1) << "task " << i;
}

}  // namespace
}  // namespace penstock
