#include "planner/cli/up/mixture_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace penstock::cli {
namespace {

std::vector<uint64_t> Counted(const std::vector<uint32_t>& tasks, size_t weights) {
  std::vector<uint64_t> counts(weights);
  for (const uint32_t task : tasks) ++counts[task];
  return counts;
}

std::vector<double> SomeWeights(std::mt19937& random) {
  std::vector<double> weights(1 + random() % 6);
  for (double& weight : weights)
    weight = random() % 4 == 0 ? 0 : std::exp(static_cast<double>(random() % 12));
  weights[random() % weights.size()] = 1;
  return weights;
}

double ShareOf(const std::vector<double>& weights, size_t task) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  return weights[task] / sum;
}

TEST(MixtureOrderTest, EveryBatchHasItsShareOfEachTaskRoundedUpOrDown) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<double> weights = SomeWeights(random);
    const uint32_t batch = 1 + random() % 200;
    const MixtureOrder order(weights, batch, random());
    for (uint64_t iteration = 0; iteration < 20; ++iteration) {
      const std::vector<uint32_t> tasks = order.TasksOf(iteration);
      ASSERT_EQ(tasks.size(), batch);
      const std::vector<uint64_t> counts = Counted(tasks, weights.size());
      for (size_t task = 0; task < weights.size(); ++task) {
        const double wanted = batch * ShareOf(weights, task);
        EXPECT_LT(std::abs(static_cast<double>(counts[task]) - wanted), 1 + 1e-9);
      }
    }
  }
}

// What is taken one by one is what the sum says, wherever it begins.
TEST(MixtureOrderTest, WhatWasTakenBeforeIsTheSumOfTheBatchesBefore) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 50; ++trial) {
    const std::vector<double> weights = SomeWeights(random);
    const MixtureOrder order(weights, 1 + random() % 50, random());
    std::vector<uint64_t> taken(weights.size());
    for (uint64_t iteration = 0; iteration < 200; ++iteration) {
      ASSERT_EQ(order.TakenBefore(iteration), taken) << "iteration " << iteration;
      const std::vector<uint64_t> counts = Counted(order.TasksOf(iteration), weights.size());
      for (size_t task = 0; task < weights.size(); ++task) taken[task] += counts[task];
    }
  }
}

TEST(MixtureOrderTest, AFarIterationIsAsExact) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const std::vector<double> weights = SomeWeights(random);
    const MixtureOrder order(weights, 1 + random() % 1000, random());
    const uint64_t far = (uint64_t{1} << 40) + random();
    std::vector<uint64_t> taken = order.TakenBefore(far);
    const std::vector<uint64_t> counts = Counted(order.TasksOf(far), weights.size());
    for (size_t task = 0; task < weights.size(); ++task) taken[task] += counts[task];
    EXPECT_EQ(order.TakenBefore(far + 1), taken);
  }
}

// Draws by chance would stray by the root of their number; these stay within a few samples.
TEST(MixtureOrderTest, SharesAreExactOverManyBatches) {
  const std::vector<double> weights = {0.7, 0.299, 0.001};
  constexpr uint32_t kBatch = 64;
  const MixtureOrder order(weights, kBatch, 7);
  for (uint64_t iteration = 1; iteration <= 100000; iteration = iteration * 3 + 1) {
    const std::vector<uint64_t> taken = order.TakenBefore(iteration);
    const double samples = static_cast<double>(kBatch * iteration);
    for (size_t task = 0; task < weights.size(); ++task) {
      const double away = std::abs(static_cast<double>(taken[task]) - samples * weights[task]);
      EXPECT_LT(away, 5) << "task " << task << " before iteration " << iteration;
      const double binomial = std::sqrt(samples * weights[task] * (1 - weights[task]));
      EXPECT_LT(away, 4 * binomial + 1);
    }
  }
}

TEST(MixtureOrderTest, SeedsDifferAndTheSameSeedDoesNot) {
  const std::vector<double> weights = {1, 1};
  const MixtureOrder order(weights, 32, 7);
  EXPECT_EQ(order.TasksOf(5), MixtureOrder(weights, 32, 7).TasksOf(5));
  EXPECT_NE(order.TasksOf(5), MixtureOrder(weights, 32, 8).TasksOf(5));
  EXPECT_NE(order.TasksOf(5), order.TasksOf(6));
}

// Runs go on with the same samples in every later version.
TEST(MixtureOrderTest, TheOrderStaysWhatItIs) {
  const MixtureOrder order({0.7, 0.3}, 10, 1);
  EXPECT_THAT(order.TasksOf(0), ::testing::ElementsAre(0, 0, 0, 0, 1, 1, 0, 0, 0, 1));
  EXPECT_THAT(order.TakenBefore(1000), ::testing::ElementsAre(7000, 3000));
}

TEST(MixtureOrderTest, ATaskWithoutWeightIsNeverTaken) {
  const MixtureOrder order({0, 2, 0, 1, 0}, 3, 9);
  EXPECT_THAT(order.TakenBefore(1000), ::testing::ElementsAre(0, 2000, 0, 1000, 0));
}

}  // namespace
}  // namespace penstock::cli
