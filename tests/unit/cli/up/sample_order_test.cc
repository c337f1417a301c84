#include "planner/cli/up/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace penstock::cli {
namespace {

std::vector<uint64_t> Epoch(SampleOrder& order, uint64_t samples, uint64_t epoch) {
  std::vector<uint64_t> walk;
  for (uint64_t i = 0; i < samples; ++i) walk.push_back(order.At(epoch * samples + i));
  return walk;
}

TEST(SampleOrderTest, EveryEpochVisitsEverySampleOnce) {
  SampleOrder order(101, 7);
  std::vector<uint64_t> all(101);
  std::iota(all.begin(), all.end(), 0);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint64_t> walk = Epoch(order, 101, epoch);
    std::sort(walk.begin(), walk.end());
    EXPECT_EQ(walk, all) << "epoch " << epoch;
  }
}

TEST(SampleOrderTest, EpochsAndSeedsAreShuffledDifferently) {
  SampleOrder order(101, 7);
  SampleOrder other(101, 8);
  const std::vector<uint64_t> first = Epoch(order, 101, 0);
  EXPECT_NE(first, Epoch(order, 101, 1));
  EXPECT_NE(first, Epoch(other, 101, 0));
}

TEST(SampleOrderTest, AnyPositionIsTheSameAfterARestart) {
  SampleOrder walked(50, 3);
  for (uint64_t position = 0; position < 120; ++position) walked.At(position);
  SampleOrder restarted(50, 3);
  EXPECT_EQ(restarted.At(120), walked.At(120));
  EXPECT_EQ(walked.At(10), SampleOrder(50, 3).At(10));
}

TEST(SampleOrderTest, OneSampleIsRepeated) {
  SampleOrder order(1, 1);
  EXPECT_EQ(order.At(0), 0);
  EXPECT_EQ(order.At(9), 0);
}

}  // namespace
}  // namespace penstock::cli
