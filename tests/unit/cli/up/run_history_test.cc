#include "planner/cli/up/run_history.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace penstock::cli
