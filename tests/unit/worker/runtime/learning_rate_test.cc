#include "worker/optimizer/learning_rate.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

constexpr LearningRateConfig kConfig = {
    .peak = 1.0, .minimum = 0.2, .warmup_iterations = 4, .decay_iterations = 12};

TEST(LearningRate, WarmsUpLinearlyAndNeverIsZero) {
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 0), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 1), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 3), 1.0);
}

TEST(LearningRate, FollowsACosineToTheMinimum) {
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 4), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 8), 0.6);
  EXPECT_LT(LearningRateAt(kConfig, 11), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 12), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateAt(kConfig, 1000), 0.2);
}

LearningRateConfig With(RateDecay decay, uint64_t cooldown = 0) {
  LearningRateConfig config = kConfig;
  config.decay = decay;
  config.cooldown_iterations = cooldown;
  return config;
}

TEST(LearningRate, FallsInALine) {
  const LearningRateConfig config = With(RateDecay::kLinear);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 3), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 4), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 6), 0.8);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 11), 0.3);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 12), 0.2);
}

TEST(LearningRate, StaysAtThePeakWhereItIsConstant) {
  for (const uint64_t iteration : {4, 11, 12, 1000})
    EXPECT_DOUBLE_EQ(LearningRateAt(With(RateDecay::kConstant), iteration), 1.0);
}

TEST(LearningRate, CoolsDownInTheLastIterationsAlone) {
  const LearningRateConfig config = With(RateDecay::kCooldown, 4);
  for (const uint64_t iteration : {4, 7, 8}) EXPECT_DOUBLE_EQ(LearningRateAt(config, iteration), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 10), 0.6);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 12), 0.2);
  // Longer than what is left behind the warm-up, or than all.
  for (const uint64_t cooldown : {10, 100}) {
    EXPECT_DOUBLE_EQ(LearningRateAt(With(RateDecay::kCooldown, cooldown), 4), 1.0);
    EXPECT_DOUBLE_EQ(LearningRateAt(With(RateDecay::kCooldown, cooldown), 8), 0.6);
  }
}

TEST(LearningRate, StaysAtThePeakWithoutDecay) {
  const LearningRateConfig config = {
      .peak = 0.5, .minimum = 0.1, .warmup_iterations = 2, .decay_iterations = 0};
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 1'000'000), 0.5);
}

TEST(LearningRate, AWarmUpAsLongAsTheDecayEndsAtTheMinimum) {
  const LearningRateConfig config = {
      .peak = 0.5, .minimum = 0.1, .warmup_iterations = 3, .decay_iterations = 3};
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 2), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateAt(config, 3), 0.1);
}

}  // namespace
}  // namespace penstock::worker
