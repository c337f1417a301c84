// The fast time of the busiest rank, against the times of its stages.
#include "planner/core/cost/bottleneck_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "planner/core/schedule/recompute_ladder.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// By the stages of each rank.
double SlowTime(const CostModel& costs, RecomputeMode mode, const TokenSums& sums) {
  LayerCosts layers;
  EXPECT_TRUE(costs.Layers(sums, &layers));
  std::vector<double> ranks(costs.positions());
  for (int stage = 0; stage < costs.stages(); ++stage) {
    const bool selective = costs.has_selective();
    const LevelRange levels = RecomputeLevels(costs.stage(stage), mode, selective);
    const StageRecompute recompute = RecomputeAtLevel(costs.stage(stage), levels.lowest, selective);
    ranks[costs.position_of(stage)] +=
        static_cast<double>(costs.ForwardNs(stage, layers) + costs.BackwardNs(stage, layers, recompute));
  }
  return *std::max_element(ranks.begin(), ranks.end());
}

void ExpectTheSame(const v1::JobSpec& job) {
  const CostModel costs = ModelOf(job);
  std::mt19937 random(1);
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kAuto}) {
    const BottleneckTime time(costs, mode);
    for (int round = 0; round < 50; ++round) {
      TokenSums packed;
      AddPacked({1 + static_cast<uint32_t>(random() % 900), 1 + static_cast<uint32_t>(random() % 900), 5},
                &packed);
      AddPacked({1 + static_cast<uint32_t>(random() % 900), 1 + static_cast<uint32_t>(random() % 900), 7},
                &packed);
      const TokenSums padded =
          PaddedSums(1 + static_cast<int>(random() % 9), 1 + static_cast<int>(random() % 900),
                     1 + static_cast<int>(random() % 900), 11);
      for (const TokenSums& sums : {packed, padded}) {
        // Stages round their passes.
        EXPECT_NEAR(time(sums), SlowTime(costs, mode, sums), 8);
      }
    }
  }
}

TEST(BottleneckTimeTest, IsTheTimeOfTheBusiestRank) {
  for (const uint32_t pipeline : {1, 2, 4, 8}) {
    ExpectTheSame(GptJob(pipeline, 1, v1::POLICY_DYNAMIC));
    ExpectTheSame(T5Job(pipeline, 1, v1::POLICY_DYNAMIC));
  }
}

TEST(BottleneckTimeTest, ARankMayHaveSeveralStages) {
  v1::JobSpec job = T5Job(2, 1, v1::POLICY_DYNAMIC);
  for (const uint32_t layers : {3, 2, 1, 2}) job.mutable_planning()->add_layers_per_stage(layers);
  for (const uint32_t rank : {0, 1, 1, 0}) job.mutable_planning()->add_rank_of_stage(rank);
  ExpectTheSame(job);
}

TEST(BottleneckTimeTest, TablesCountWherePaddedShapesLieInThem) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_PADDING);
  v1::Grid* grid = job.mutable_profile()->mutable_grid();
  for (const uint32_t rows : {1, 4}) grid->add_micro_batch_size(rows);
  for (const uint32_t length : {1, 500}) grid->add_target_length(length);
  v1::LayerCost* layer = job.mutable_profile()->mutable_layers(0);
  for (const double ms : {1, 2, 3, 9}) layer->mutable_forward_ms()->add_values(ms);
  for (const double ms : {2, 5, 7, 20}) layer->mutable_backward_none_ms()->add_values(ms);
  ExpectTheSame(job);
}

TEST(BottleneckTimeTest, OutsideOfAProfileWithoutClosedFormIsInfinite) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_PADDING);
  v1::Grid* grid = job.mutable_profile()->mutable_grid();
  grid->add_micro_batch_size(1);
  grid->add_target_length(10);
  v1::LayerCost* layer = job.mutable_profile()->mutable_layers(0);
  layer->clear_forward();
  layer->mutable_forward_ms()->add_values(1);
  const CostModel costs = ModelOf(job);
  const BottleneckTime time(costs, RecomputeMode::kAuto);
  EXPECT_TRUE(std::isinf(time(PaddedSums(1, 0, 11))));
  EXPECT_FALSE(std::isinf(time(PaddedSums(1, 0, 10))));
}

}  // namespace
}  // namespace penstock::core
