#include "planner/core/search/ideal_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace penstock::core {
namespace {

using Shares = std::vector<double>;

// Like a GPT: backward passes take twice as long, the last stage has the head too.
std::vector<LinearStage> Gpt(int stages) {
  std::vector<LinearStage> pipeline;
  for (int stage = 0; stage < stages; ++stage) {
    const double slower = stage + 1 == stages ? 1.12 : 1;
    pipeline.push_back({.forward = {9 * slower, 2000 * slower}, .backward = {18 * slower, 4000 * slower}});
    if (stage + 1 < stages) pipeline.back().transfer = {0.01, 5};
  }
  return pipeline;
}

double Sum(const Shares& shares) { return std::accumulate(shares.begin(), shares.end(), 0.0); }

TEST(IdealSizes, MakespanIsThatOfOneForwardOneBackward) {
  const std::vector<LinearStage> stages = {
      {.forward = {1, 10}, .backward = {2, 20}, .transfer = {1, 10}, .end_ns = 7},
      {.forward = {1, 10}, .backward = {2, 20}}};
  // Stage 0: F0 0-6, F1 6-12, B0 waits for F0 6-12 and B0 18-30 of stage 1 and 6 on the way each time: 36-48.
  // Stage 1: F0 12-18, B0 18-30, F1 30-36, B1 36-48; stage 0: B1 54-66.
  EXPECT_DOUBLE_EQ(BestSizes(stages, {{0.5, 0.5}}).makespan_ns, 66 + 7);
}

TEST(IdealSizes, OneStageTakesAllOfTheWork) {
  const std::vector<LinearStage> stages = {{.forward = {1, 10}, .backward = {2, 20}}};
  EXPECT_NEAR(FindIdealSizes(stages, {{0.2, 0.3, 0.5}}, 1).makespan_ns, 3 * 3 + 30, 1e-9);
}

TEST(IdealSizes, BestOfGivenSharesIsFound) {
  const Shares level(8, 0.125);
  const Shares ramp = {0.03, 0.07, 0.15, 0.22, 0.19, 0.16, 0.12, 0.06};
  const IdealSizes best = BestSizes(Gpt(4), {level, ramp});
  EXPECT_EQ(best.shares, ramp);
  EXPECT_LT(best.makespan_ns, BestSizes(Gpt(4), {level}).makespan_ns);
}

TEST(IdealSizes, AreCloseToTheBestOfAFineGrid) {
  const std::vector<LinearStage> stages = Gpt(2);
  constexpr int kGrid = 60;
  double best = 1e18;
  for (int a = 1; a < kGrid; ++a) {
    for (int b = 1; a + b < kGrid; ++b) {
      for (int c = 1; a + b + c < kGrid; ++c) {
        const Shares shares = {1.0 * a / kGrid, 1.0 * b / kGrid, 1.0 * c / kGrid,
                               1.0 * (kGrid - a - b - c) / kGrid};
        best = std::min(best, BestSizes(stages, {shares}).makespan_ns);
      }
    }
  }
  const IdealSizes ideal = FindIdealSizes(stages, {{0.25, 0.25, 0.25, 0.25}}, 1);
  EXPECT_LT(ideal.makespan_ns, best * 1.003);
  EXPECT_DOUBLE_EQ(BestSizes(stages, {ideal.shares}).makespan_ns, ideal.makespan_ns);
}

TEST(IdealSizes, FillAndDrainWithSmallMicroBatches) {
  const int micro_batches = 16;
  const Shares level(micro_batches, 1.0 / micro_batches);
  const IdealSizes ideal = FindIdealSizes(Gpt(4), {level}, 1);
  EXPECT_NEAR(Sum(ideal.shares), 1, 1e-9);
  EXPECT_LT(ideal.makespan_ns, 0.95 * BestSizes(Gpt(4), {level}).makespan_ns);
  EXPECT_LT(ideal.shares.front(), 0.3 * level.front());
  EXPECT_LT(ideal.shares.back(), 0.7 * level.back());
  EXPECT_GT(*std::min_element(ideal.shares.begin(), ideal.shares.end()), 0);
}

TEST(IdealSizes, NoShareIsAboveTheLargest) {
  Shares ramp = {0.05, 0.15, 0.3, 0.25, 0.15, 0.1};
  const IdealSizes ideal = FindIdealSizes(Gpt(4), {ramp}, 0.22);
  EXPECT_NEAR(Sum(ideal.shares), 1, 1e-6);
  EXPECT_LT(*std::max_element(ideal.shares.begin(), ideal.shares.end()), 0.2201);
}

}  // namespace
}  // namespace penstock::core
