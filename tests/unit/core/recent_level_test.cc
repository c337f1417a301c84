#include "planner/core/calibrate/recent_level.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::core {
namespace {

TEST(RecentLevel, IsWhatAllIterationsSayWhereTheySayTheSame) {
  EXPECT_EQ(RecentLevel({}), 1);
  EXPECT_DOUBLE_EQ(RecentLevel({1.25}), 1.25);
  EXPECT_NEAR(RecentLevel(std::vector<double>(16, 0.8)), 0.8, 1e-12);
}

TEST(RecentLevel, FollowsAMachineThatHasBecomeSlower) {
  std::vector<double> ratios(8, 1.0);
  ratios.resize(16, 1.1);
  const double level = RecentLevel(ratios);
  EXPECT_GT(level, 1.07);
  EXPECT_LT(level, 1.1);
  std::vector<double> faster(8, 1.1);
  faster.resize(16, 1.0);
  EXPECT_NEAR(RecentLevel(faster), 2.1 - level, 1e-3);
}

TEST(RecentLevel, IsHardlyMovedByOneIterationThatTookFarLonger) {
  std::vector<double> ratios = {0.97, 1.02, 1.0, 0.98, 1.03, 0.99, 1.01, 1.0};
  const double level = RecentLevel(ratios);
  ratios.back() = 20;
  EXPECT_NEAR(RecentLevel(ratios), level, 0.05);
  // Of four alone, too.
  EXPECT_NEAR(RecentLevel({1.05, 1.08, 1.11, 2.03}), 1.08, 0.08);
}

TEST(RecentError, CountsTheLastIterationsMost) {
  EXPECT_EQ(RecentError({}), 0);
  EXPECT_DOUBLE_EQ(RecentError({2.0}), 0.5);
  EXPECT_GT(RecentError({1.0, 1.0, 1.25}), RecentError({1.25, 1.0, 1.0}));
  EXPECT_NEAR(RecentError(std::vector<double>(5, 1.25)), 0.2, 1e-12);
}

TEST(RecencyWeights, HalveEveryHalfLife) {
  const std::vector<double> weights = RecencyWeights(9);
  EXPECT_DOUBLE_EQ(weights[8], 1);
  EXPECT_DOUBLE_EQ(weights[4], 0.5);
  EXPECT_DOUBLE_EQ(weights[0], 0.25);
}

}  // namespace
}  // namespace penstock::core
