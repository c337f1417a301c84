#include "planner/cli/up/run_history.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::cli {
namespace {

v1::IterationSummary Done(uint64_t iteration, int64_t took) {
  v1::IterationSummary summary;
  summary.set_iteration(iteration);
  summary.set_measured_ns(took);
  return summary;
}

TEST(RunHistoryTest, WhatIsShownOnceMoreIsNotTakenAndWhatIsDoneAgainIs) {
  RunHistory history;
  for (const uint64_t iteration : {4, 5, 6, 7}) EXPECT_TRUE(history.Take(Done(iteration, 100)));
  // A new epoch, which has done 6 again so far.
  EXPECT_FALSE(history.Take(Done(4, 100)));
  EXPECT_FALSE(history.Take(Done(5, 100)));
  EXPECT_EQ(history.iterations.size(), 4U);
  EXPECT_TRUE(history.Take(Done(6, 90)));
  ASSERT_EQ(history.iterations.size(), 3U) << "7 is to be done again";
  EXPECT_EQ(history.iterations.back().measured_ns(), 90);
  EXPECT_TRUE(history.Take(Done(7, 100)));
  EXPECT_FALSE(history.Take(Done(7, 100)));
}

// Of old iterations the planner no longer knows the loads of single layers.
TEST(RunHistoryTest, WhatThePlannerForgetsAndLossesThatAreNoNumbersMakeNothingNew) {
  v1::IterationSummary first = Done(4, 100);
  first.add_expert_layers()->set_layer(1);
  v1::IterationSummary second = Done(5, 100);
  second.mutable_validation()->set_loss(std::nan(""));
  RunHistory history;
  EXPECT_TRUE(history.Take(first));
  EXPECT_TRUE(history.Take(second));
  EXPECT_FALSE(history.Take(Done(4, 100)));
  EXPECT_FALSE(history.Take(second));
  EXPECT_EQ(history.iterations.size(), 2U);
}

}  // namespace
}  // namespace penstock::cli
