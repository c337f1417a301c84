// Stages that the planner chooses (STAGE_SPLIT_AUTO).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

v1::JobSpec Auto(v1::JobSpec job, v1::Schedule schedule) {
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  job.mutable_planning()->set_schedule(schedule);
  for (int i = 0; i < 40; ++i) {
    v1::SampleLengths& lengths = *job.mutable_planning()->add_typical_samples();
    lengths.set_input_tokens(20 + 13 * i % 200);
    lengths.set_target_tokens(10 + 7 * i % 50);
  }
  return job;
}

std::vector<int> LayersOf(const Planner& planner) {
  std::vector<int> layers;
  for (const Stage& stage : planner.job().topology.shape().stages) layers.push_back(stage.layers());
  return layers;
}

v1::LayerCost* LayerNamed(const std::string& name, v1::JobSpec* job) {
  for (v1::LayerCost& layer : *job->mutable_profile()->mutable_layers()) {
    if (layer.name() == name) return &layer;
  }
  return nullptr;
}

TEST(StageChoiceTest, AHeavyHeadLeavesTheLastStageFewerLayers) {
  v1::JobSpec job = Auto(GptJob(2, 1, v1::POLICY_DYNAMIC), v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  const double layer_ns = LayerNamed("layer", &job)->forward().target_token_ns();
  LayerNamed("head", &job)->mutable_forward()->set_target_token_ns(2 * layer_ns);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const std::vector<int> layers = LayersOf(**planner);
  ASSERT_THAT(layers, SizeIs(2));
  EXPECT_GT(layers[0], layers[1]);
}

TEST(StageChoiceTest, SchedulesWithOneStageARankKeepOne) {
  for (const v1::Schedule schedule :
       {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_READY_FIRST, v1::SCHEDULE_SPLIT_BACKWARD}) {
    const auto planner = Planner::Create(Auto(T5Job(2, 1, v1::POLICY_DYNAMIC), schedule));
    ASSERT_TRUE(planner.ok()) << planner.status();
    EXPECT_THAT((*planner)->job().topology.shape().position_of_stage, ElementsAre(0, 1));
  }
}

TEST(StageChoiceTest, InterleavedPutsTwoStagesOnEveryRank) {
  const auto planner = Planner::Create(Auto(GptJob(2, 1, v1::POLICY_DYNAMIC), v1::SCHEDULE_INTERLEAVED));
  ASSERT_TRUE(planner.ok()) << planner.status();
  const std::vector<int32_t>& ranks = (*planner)->job().topology.shape().position_of_stage;
  ASSERT_THAT(ranks, SizeIs(4));
  EXPECT_EQ(std::count(ranks.begin(), ranks.end(), 0), 2);
  EXPECT_EQ(std::count(ranks.begin(), ranks.end(), 1), 2);
  const auto plan = (*planner)->MakePlan(MakeBatch({{100, 20}, {30, 30}, {7, 5}, {60, 60}}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->schedule(), v1::SCHEDULE_INTERLEAVED);
}

TEST(StageChoiceTest, TheOnlyLayoutThatFitsIsChosen) {
  v1::JobSpec job = Auto(GptJob(4, 1, v1::POLICY_DYNAMIC), v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  job.mutable_model()->set_layers(48);
  LayerNamed("layer", &job)->set_parameter_bytes(1'000'000);
  // Twelve layers take 48 MB of weights, gradients and optimizer state, thirteen 52.
  job.mutable_planning()->set_memory_limit_bytes(51'000'000);
  for (const uint32_t batches : {1, 2, 4, 8}) {
    job.mutable_planning()->set_typical_batch_size(40 / batches);
    const auto planner = Planner::Create(job);
    ASSERT_TRUE(planner.ok()) << batches << " batches: " << planner.status();
    EXPECT_THAT(LayersOf(**planner), ElementsAre(12, 12, 12, 12)) << batches << " batches";
  }
}

TEST(StageChoiceTest, AllLayersAreSomewhereAndTheChoiceIsTheSameEveryTime) {
  const v1::JobSpec job = Auto(T5Job(2, 2, v1::POLICY_DYNAMIC), v1::SCHEDULE_AUTO);
  const auto one = Planner::Create(job);
  const auto other = Planner::Create(job);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(LayersOf(**one), LayersOf(**other));
  EXPECT_EQ((*one)->job().topology.shape().position_of_stage,
            (*other)->job().topology.shape().position_of_stage);
  const std::vector<int> layers = LayersOf(**one);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), 0),
            static_cast<int>(job.model().encoder_layers() + job.model().decoder_layers()));
}

TEST(StageChoiceTest, AChosenSplitIsNotSlowerThanTheEvenOne) {
  v1::JobSpec job = Auto(T5Job(4, 1, v1::POLICY_DYNAMIC), v1::SCHEDULE_AUTO);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (const v1::SampleLengths& sample : job.planning().typical_samples()) {
    lengths.emplace_back(sample.input_tokens(), sample.target_tokens());
  }
  const v1::Batch batch = MakeBatch(lengths);
  const auto chosen = (*Planner::Create(job))->MakePlan(batch);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  const auto even = (*Planner::Create(job))->MakePlan(batch);
  ASSERT_TRUE(chosen.ok() && even.ok());
  EXPECT_LE(chosen->predicted().makespan_ns(), even->predicted().makespan_ns());
}

}  // namespace
}  // namespace penstock::core
