// Whose task a planning pool runs next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/unit/service/planning_pool_fixture.h"

namespace penstock {
namespace {

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

}  // namespace
}  // namespace penstock
