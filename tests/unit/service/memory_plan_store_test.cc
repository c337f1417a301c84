#include "planner/service/engine/memory_plan_store.h"

#include <gtest/gtest.h>

#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

class MemoryPlanStoreTest : public testing::Test {
 protected:
  MemoryPlanStoreTest() {
    EXPECT_TRUE(store_.AddJob(MakeJob("job")).ok());
    std::vector<BatchPtr> batches;
    for (uint64_t i = 0; i < 4; ++i) batches.push_back(std::make_shared<const v1::Batch>(MakeBatch(i)));
    EXPECT_TRUE(store_.AddBatches("job", batches).ok());
    for (uint64_t i = 0; i < 3; ++i) {
      auto plan = std::make_shared<v1::Plan>();
      plan->set_iteration(i);
      EXPECT_TRUE(store_.AddPlan("job", plan).ok());
    }
  }
  MemoryPlanStore store_;
};

TEST_F(MemoryPlanStoreTest, GivesBackWhatItWasGiven) {
  EXPECT_EQ((*store_.GetBatch("job", 2))->iteration(), 2);
  EXPECT_EQ((*store_.GetPlan("job", 2))->iteration(), 2);
  EXPECT_TRUE(store_.GetReports("job", 2)->empty());
}

TEST_F(MemoryPlanStoreTest, WhatIsMissingIsNotFound) {
  EXPECT_THAT(store_.GetPlan("job", 3), Fails(absl::StatusCode::kNotFound, "iteration 3"));
  EXPECT_THAT(store_.GetBatch("job", 9), Fails(absl::StatusCode::kNotFound, "iteration 9"));
  EXPECT_THAT(store_.GetPlan("other", 0), Fails(absl::StatusCode::kNotFound, "other"));
  EXPECT_THAT(store_.AddBatches("other", {}), Fails(absl::StatusCode::kNotFound, "other"));
}

TEST_F(MemoryPlanStoreTest, ListsReportsByRankAndTheLastOfARankCounts) {
  for (uint32_t rank : {1, 0, 1}) ASSERT_TRUE(store_.AddReport(MakeReport(rank, 1)).ok());
  const auto reports = *store_.GetReports("job", 1);
  ASSERT_EQ(reports.size(), 2);
  EXPECT_EQ(reports[0].rank(), 0);
  EXPECT_EQ(reports[1].rank(), 1);
}

TEST_F(MemoryPlanStoreTest, DropsReportsFromAnIterationOn) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(store_.AddReport(MakeReport(0, i)).ok());
  ASSERT_TRUE(store_.DropReports("job", 1).ok());
  EXPECT_EQ(store_.GetReports("job", 0)->size(), 1);
  EXPECT_EQ(store_.GetReports("job", 1)->size(), 0);
  EXPECT_EQ(store_.GetReports("job", 2)->size(), 0);
}

TEST_F(MemoryPlanStoreTest, TrimForgetsWhatComesBefore) {
  ASSERT_TRUE(store_.Trim("job", 2).ok());
  EXPECT_FALSE(store_.GetPlan("job", 1).ok());
  EXPECT_TRUE(store_.GetPlan("job", 2).ok());
}

TEST_F(MemoryPlanStoreTest, ARemovedJobIsForgotten) {
  ASSERT_TRUE(store_.RemoveJob("job").ok());
  EXPECT_FALSE(store_.GetPlan("job", 0).ok());
}

}  // namespace
}  // namespace penstock
