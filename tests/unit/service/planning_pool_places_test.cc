// How many tasks may wait in a planning pool, and whose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/service/planning_pool_fixture.h"

namespace penstock {
namespace {

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

}  // namespace
}  // namespace penstock
