// Costs of stages that have layers with experts and layers without, against values worked out by hand
// (execution.md, sections 7 and 8).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/cost/level_counts.h"
#include "planner/core/planner.h"
#include "planner/core/topology/stage_list.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 8 layers, of which 1, 3, 4 and 8 have no experts and take 400 ns and 3 ns a token; the others 1000 ns, 10
// ns a token and 0.01 ns a squared token. 4 experts over 4 context ranks, a token goes to one.
v1::JobSpec SomeExpertsGpt(const std::vector<uint32_t>& layers_per_stage) {
  v1::JobSpec job = GptJob(static_cast<uint32_t>(layers_per_stage.size()), 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->mutable_layers_per_stage()->Assign(layers_per_stage.begin(),
                                                             layers_per_stage.end());
  DivideExperts(job);
  for (const uint32_t layer : {1, 3, 4, 8}) job.mutable_model()->add_dense_layers(layer);
  v1::LayerCost dense = job.profile().layers(0);
  dense.set_name("dense");
  dense.set_parameter_bytes(job.profile().layers(0).parameter_bytes() / 4);
  v1::LayerTime& forward = *dense.mutable_forward();
  forward.Clear();
  forward.set_fixed_ns(400);
  forward.set_target_token_ns(3);
  dense.set_backward_ratio_none(3);
  dense.set_backward_ratio_full(5);
  dense.mutable_stored_none()->set_target_token_bytes(7);
  *job.mutable_profile()->add_layers() = dense;
  return job;
}

Share ShareOfRow(uint32_t tokens) {
  TokenSums sums;
  AddPacked({.target = tokens}, &sums);
  return WholeShare(sums);
}

LayerCosts CostsOfLayers(const CostModel& costs, const Share& share) {
  LayerCosts layers;
  EXPECT_TRUE(costs.Layers(share, &layers));
  return layers;
}

std::vector<std::vector<int32_t>> DensePlaces(const std::vector<Stage>& stages) {
  std::vector<std::vector<int32_t>> places;
  for (const Stage& stage : stages) places.push_back(stage.dense);
  return places;
}

TEST(DenseLayersTest, StagesKnowWhichOfTheirLayersHaveNoExperts) {
  const LayerOrder order = {.dense = {0, 2, 3, 7}};
  const std::vector<Stage> stages = MakeStages({{1, 4, 2, 1}}, order);
  EXPECT_THAT(DensePlaces(stages), ElementsAre(ElementsAre(0), ElementsAre(1, 2), IsEmpty(), ElementsAre(0)));
  EXPECT_EQ(stages[1].count(kDecoder), 2);
  EXPECT_EQ(stages[1].count(kDense), 2);
  EXPECT_EQ(stages[1].layers(), 4);
  // As many stages, at other boundaries.
  EXPECT_EQ(LayerOrderOf(stages).dense, order.dense);
  EXPECT_THAT(DensePlaces(MakeStages({{3, 5}}, LayerOrderOf(stages))),
              ElementsAre(ElementsAre(0, 2), ElementsAre(0, 4)));
}

TEST(DenseLayersTest, LevelsOfRecomputeGoByWhereLayersAre) {
  const Stage stage = MakeStages({{5, 3}}, {.dense = {0, 2, 3}}).front();
  const LevelCounts levels = CountLevels(stage, {.selective = 2, .full = 2});
  EXPECT_THAT(levels.counts[kDense], ElementsAre(0, 2, 1));
  EXPECT_THAT(levels.counts[kDecoder], ElementsAre(1, 0, 1));
  std::vector<std::pair<LayerKind, int32_t>> runs;
  for (const LayerRun& run : RunsOf(stage, {.selective = 2, .full = 2}))
    runs.emplace_back(run.kind, run.layers);
  EXPECT_THAT(runs, ElementsAre(std::pair(kDense, 1), std::pair(kDecoder, 1), std::pair(kDense, 2),
                                std::pair(kDecoder, 1)));
}

TEST(DenseLayersTest, PassesTakeWhatTheirLayersTake) {
  const CostModel costs = ModelOf(SomeExpertsGpt({1, 5, 2}));
  const LayerCosts layers = CostsOfLayers(costs, ShareOfRow(100));
  // 100 tokens: 2100 ns with experts, 700 ns without; rows 100 + 1200 ns twice.
  EXPECT_EQ(costs.ForwardNs(0, layers), 700);
  EXPECT_EQ(costs.ForwardNs(1, layers), 3 * 2100 + 2 * 700 + 3 * 2 * 1300);
  EXPECT_EQ(costs.BackwardNs(0, layers, {}), 2100);
  EXPECT_EQ(costs.BackwardNs(0, layers, {.full = 1}), 5 * 700);
  // With their gradients go 16 bytes: 100 + 2400 ns.
  EXPECT_EQ(costs.BackwardNs(1, layers, {}), 3 * 4200 + 2 * 2100 + 3 * 2 * 2500);
  // Layers 2 to 4 run again, of which one has experts.
  EXPECT_EQ(costs.BackwardNs(1, layers, {.full = 3}),
            2 * 4200 + 6300 + 2 * 5 * 700 + 3 * 2 * 2500 + 2 * 1300);
}

TEST(DenseLayersTest, AStageWithoutExpertsExchangesNoRows) {
  v1::JobSpec job = SomeExpertsGpt({1, 5, 2});
  job.mutable_profile()->mutable_cluster()->set_exchange_overlap(1);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOfLayers(costs, ShareOfRow(100));
  EXPECT_TRUE(costs.ForwardExchange(0, layers).is_empty());
  const PassExchange backward = costs.BackwardExchange(0, layers, {});
  EXPECT_TRUE(backward.is_empty());
  EXPECT_EQ(backward.products_beside_return, 0);
  EXPECT_FALSE(backward.others_beside_arrival);
  EXPECT_EQ(costs.BesideNs(0, layers), 0);
  EXPECT_EQ(costs.Memory(0, ShareOfRow(100)).rows, 0);
  EXPECT_GT(costs.Memory(1, ShareOfRow(100)).rows, 0);
  EXPECT_EQ(costs.WeightNs(0, layers), 1050);
}

TEST(DenseLayersTest, ProductsBesideExchangesAreThoseOfLayersWithExperts) {
  v1::JobSpec job = SomeExpertsGpt({1, 5, 2});
  job.mutable_profile()->mutable_cluster()->set_exchange_overlap(1);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOfLayers(costs, ShareOfRow(100));
  const WeightsBeside& beside = layers.exchange.beside;
  EXPECT_GT(beside.arrival_ns, 0);
  EXPECT_EQ(costs.BesideNs(1, layers), 3 * beside.return_ns + 2 * beside.arrival_ns);
  EXPECT_EQ(costs.BesideNs(2, layers), beside.return_ns);
  const PassExchange backward = costs.BackwardExchange(1, layers, {});
  EXPECT_EQ(backward.expert_ns - backward.expert_exposed_ns, beside.HiddenNs(3, 3, 2500));
  // Of the lowest three layers one has experts.
  const PassExchange again = costs.BackwardExchange(1, layers, {.full = 3});
  EXPECT_EQ(again.expert_ns - again.expert_exposed_ns, beside.HiddenNs(3, 2, 2500));
}

TEST(DenseLayersTest, MemoryIsThatOfTheLayersThatAreThere) {
  const CostModel costs = ModelOf(SomeExpertsGpt({1, 5, 2}));
  const StageMemory dense = costs.Memory(0, ShareOfRow(100));
  EXPECT_EQ(costs.StoredBytes(0, dense, {}), 700);
  const StageMemory both = costs.Memory(1, ShareOfRow(100));
  EXPECT_EQ(costs.StoredBytes(1, both, {}), 3 * both.stored_layer[kDecoder][kKeepAll] + 2 * 700);
  EXPECT_EQ(costs.PutAsideBytes(1, both), costs.StoredBytes(1, both, {}));
  EXPECT_EQ(costs.BackwardPeak(0, dense, {}), dense.peak_layer[kDense][kKeepAll]);
  EXPECT_GT(costs.BackwardPeak(0, dense, {}), 0);
}

TEST(DenseLayersTest, ParametersAreThoseOfTheLayersThatAreThere) {
  v1::JobSpec job = SomeExpertsGpt({1, 5, 2});
  job.mutable_mesh()->clear_expert();
  const CostModel costs = ModelOf(job);
  const auto layer = static_cast<int64_t>(job.profile().layers(0).parameter_bytes());
  EXPECT_EQ(costs.ParameterBytes(1), 3 * layer + 2 * layer / 4);
}

// A part waits for its rows while the other is computed: layers between those with experts make that longer.
TEST(DenseLayersTest, PartsComputeLayersWithoutExpertsWhileRowsTravel) {
  PartCosts part;
  part.with_experts = {.forward_ns = 100, .backward_ns = {200, 200, 300}, .weights_ns = 100};
  part.dense = {.forward_ns = 70, .backward_ns = {140, 140, 210}, .weights_ns = 70};
  part.experts_ns = 40;
  part.rows_ns = part.row_gradients_ns = 150;
  const std::vector<PartCosts> two = {part, part};
  const auto forward = [&](const std::vector<int32_t>& dense, uint32_t layers) {
    return ForwardWaitingNs(MakeStages(absl::MakeConstSpan(&layers, 1), {.dense = dense}).front(), two);
  };
  EXPECT_EQ(forward({0}, 1), 0);
  // With experts alone: 60 and 40 ns of each part are computed, rows travel four times.
  EXPECT_EQ(forward({}, 1), 4 * 150 + 60 - 2 * 100);
  // One part's dense layer is computed beside the other's rows, and between layers each part's is.
  EXPECT_EQ(forward({0}, 2), forward({}, 1) - 70);
  EXPECT_EQ(forward({1}, 2), forward({}, 1) - 70);
  EXPECT_EQ(forward({1}, 3), forward({}, 2) - 2 * 70);
}

TEST(DenseLayersTest, AProfileHasFiguresOfThemWhereTheModelHasSuchLayers) {
  v1::JobSpec job = SomeExpertsGpt({8});
  EXPECT_TRUE(Planner::Create(job).ok());
  v1::JobSpec without = job;
  without.mutable_profile()->mutable_layers()->RemoveLast();
  EXPECT_THAT(std::string(Planner::Create(without).status().message()),
              HasSubstr("job.profile.layers: 'dense' is missing, for the layers without experts"));
  job.mutable_model()->clear_dense_layers();
  EXPECT_THAT(std::string(Planner::Create(job).status().message()),
              HasSubstr("job.profile.layers: 'dense' is of layers without experts, which"));
}

TEST(DenseLayersTest, TheirWidthIsDividedOverTensorRanks) {
  v1::JobSpec job = SomeExpertsGpt({8});
  job.mutable_mesh()->clear_expert();
  job.mutable_mesh()->clear_context();
  job.mutable_mesh()->set_tensor(2);
  job.mutable_model()->set_dense_ffn(13);
  EXPECT_THAT(std::string(Planner::Create(job).status().message()),
              HasSubstr("a feed-forward width of 10, of layers without experts 13; use 1"));
}

}  // namespace
}  // namespace penstock::core
