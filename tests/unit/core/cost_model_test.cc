// Costs against values worked out by hand.
#include "planner/core/cost/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/grid_table.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TokenSums Packed(std::vector<SampleTokens> samples) {
  TokenSums sums;
  for (const SampleTokens& sample : samples) AddPacked(sample, &sums);
  return sums;
}

Grid ExampleGrid() { return {{1, 2, 4}, {}, {10, 20}}; }

TEST(GridTableTest, APointOfTheGridHasItsOwnValue) {
  const std::vector<double> table = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(*Interpolate(table, LocateOnGrid(ExampleGrid(), TableAxes::kTarget, PaddedSums(2, 0, 20), false)),
            4);
  EXPECT_EQ(*Interpolate(table, LocateOnGrid(ExampleGrid(), TableAxes::kTarget, PaddedSums(4, 0, 20), false)),
            6);
}

TEST(GridTableTest, BetweenPointsTheValueIsLinearAlongEachAxis) {
  const std::vector<double> table = {1, 2, 3, 4, 5, 6};
  // Rows 3 lie half way from 2 to 4, length 15 half way: mean of 3, 4, 5 and 6.
  EXPECT_DOUBLE_EQ(
      *Interpolate(table, LocateOnGrid(ExampleGrid(), TableAxes::kTarget, PaddedSums(3, 0, 15), false)), 4.5);
}

TEST(GridTableTest, OutsideOrNotProfiledIsNoValue) {
  const std::vector<double> table = {1, 2, 3, 4, 5, kNan};
  const auto value = [&](int rows, int length, bool clamp) {
    return Interpolate(table,
                       LocateOnGrid(ExampleGrid(), TableAxes::kTarget, PaddedSums(rows, 0, length), clamp));
  };
  EXPECT_FALSE(value(5, 10, true).has_value());
  EXPECT_FALSE(value(1, 21, true).has_value());
  EXPECT_FALSE(value(4, 15, true).has_value());
  EXPECT_FALSE(value(1, 9, false).has_value());
  EXPECT_EQ(*value(1, 9, true), 1);
  // The corner that was not profiled has no weight here.
  EXPECT_EQ(*value(4, 10, true), 5);
}

TEST(GridTableTest, ThreeAxesAreInterpolatedTogether) {
  const Grid grid = {{1, 3}, {10, 20}, {100, 200}};
  const std::vector<double> table = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_DOUBLE_EQ(
      *Interpolate(table, LocateOnGrid(grid, TableAxes::kSourceTarget, PaddedSums(2, 15, 150), false)), 3.5);
}

TEST(CostModelTest, PackedCostsFollowTheClosedForm) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  LayerCosts layers;
  ASSERT_TRUE(costs.Layers(Packed({{0, 100, 0}, {0, 200, 0}}), &layers));
  // 1000 + 10 * 300 + 0.01 * (100^2 + 200^2).
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 4500);
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepInput], 13500);
  // Four layers; the last stage has the head, 500 + 5 * 300.
  EXPECT_EQ(costs.ForwardNs(0, layers), 18000);
  EXPECT_EQ(costs.ForwardNs(1, layers), 20000);
  EXPECT_EQ(costs.BackwardNs(1, layers, {0, 1}), 13500 + 3 * 9000 + 4000);
}

TEST(CostModelTest, PartsOfABackwardPassMayHaveClosedFormsOfTheirOwn) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  layer.mutable_backward_input()->set_target_token_ns(9);
  layer.mutable_backward_input()->set_target_square_ns(0.05);
  layer.mutable_backward_input()->set_half_efficiency_tokens(30);
  layer.mutable_backward_weight()->set_fixed_ns(70);
  layer.mutable_backward_weight()->set_target_token_ns(8);
  const CostModel costs = ModelOf(job);
  LayerCosts layers;
  ASSERT_TRUE(costs.Layers(Packed({{0, 100, 0}, {0, 200, 0}}), &layers));
  // (9 * 300 + 0.05 * (100^2 + 200^2)) * (1 + 30 / 300), and 70 + 8 * 300.
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 4500);
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepAll], 5720 + 2470);
  EXPECT_DOUBLE_EQ(layers.weight[kDecoder], 2470);
  // What recompute adds is what the ratios say: 3 - 2 forward passes.
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepInput], 5720 + 2470 + 4500);
  EXPECT_EQ(costs.WeightNs(0, layers), 4 * 2470);
  EXPECT_EQ(costs.BackwardNs(0, layers, {}), 4 * (5720 + 2470));
}

// What is said of a GPT's profile that is changed so; empty: nothing is wrong with it.
template <typename Change>
std::string MessageOf(const Change& change) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  change(job.mutable_profile());
  return std::string(ProfileFromProto(job.profile(), Architecture::kGpt).status().message());
}

TEST(CostModelTest, ClosedFormsOfABackwardPassAreBothThereOrNone) {
  EXPECT_THAT(
      MessageOf([](v1::CostProfile* profile) { profile->mutable_layers(0)->mutable_backward_input(); }),
      testing::HasSubstr("layers[0].backward_input: set backward_input and backward_weight both"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(1)->mutable_backward_input();
                profile->mutable_layers(1)->mutable_backward_weight();
              }),
              testing::HasSubstr("layers[1].backward_input: a head has none"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(0)->mutable_backward_input();
                profile->mutable_layers(0)->mutable_backward_weight();
                profile->mutable_layers(0)->mutable_backward_none_ms()->add_values(1);
                profile->mutable_grid()->add_micro_batch_size(1);
                profile->mutable_grid()->add_target_length(1);
              }),
              testing::HasSubstr("leave it out beside tables"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(0)->mutable_backward_input()->set_target_token_ns(-1);
                profile->mutable_layers(0)->mutable_backward_weight();
              }),
              testing::HasSubstr("layers[0].backward_input.target_token_ns"));
}

TEST(CostModelTest, EachRowOfAPackedMicroBatchMayTakeTime) {
  LayerTime time;
  time.fixed_ns = 5;
  time.target_token_ns = 2;
  time.half_efficiency_tokens = 50;
  time.packed_row_ns = 7;
  EXPECT_DOUBLE_EQ(time(Packed({{0, 10, 0}, {0, 30, 0}, {0, 10, 0}})), 5 + 2 * 50 * 2 + 3 * 7);
  EXPECT_DOUBLE_EQ(time(PaddedSums(5, 0, 10)), 5 + 2 * 50 * 2);
}

TEST(CostModelTest, ACallOfAttentionMayTakeTimeForAllOfItsRowsAtOnce) {
  LayerTime time;
  time.fixed_ns = 5;
  time.target_square_ns = 2;
  time.target_call_square_ns = 7;
  time.source_call_square_ns = 3;
  EXPECT_DOUBLE_EQ(time(Packed({{4, 10, 0}, {6, 30, 0}})), 5 + (2 + 7) * (100 + 900) + 3 * (16 + 36));
  EXPECT_DOUBLE_EQ(time(PaddedSums(5, 4, 10)), 5 + 2 * 500 + 7 * 100 + 3 * 16);
  EXPECT_DOUBLE_EQ(time(TokenSums()), 5);
}

TEST(CostModelTest, DividedRowsMayTakeTimeEach) {
  LayerTime time;
  time.fixed_ns = 5;
  time.target_token_ns = 2;
  time.half_efficiency_tokens = 50;
  time.divided_row_ns = 3;
  TokenSums share = Packed({{0, 10, 0}, {0, 40, 0}});
  EXPECT_DOUBLE_EQ(time(share), 5 + 2 * 50 * 2);
  share.divided_rows = 2;
  EXPECT_DOUBLE_EQ(time(share), 5 + 2 * 50 * 2 + 3 * 2);
  EXPECT_EQ(LossPositions(share).divided_rows, 0);
  EXPECT_EQ(TargetSide(share).divided_rows, 0);
}

TEST(CostModelTest, RowsTakeNothingWhereThereIsNoAttention) {
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(1)->mutable_forward()->set_packed_row_ns(3);
              }),
              testing::HasSubstr("layers[1].forward.packed_row_ns: 3; leave it out"));
  EXPECT_THAT(
      MessageOf([](v1::CostProfile* profile) { profile->mutable_embedding_forward()->set_packed_row_ns(3); }),
      testing::HasSubstr("embedding_forward.packed_row_ns: 3; leave it out"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_embedding_forward()->set_source_call_square_ns(3);
              }),
              testing::HasSubstr("embedding_forward.source_call_square_ns: 3; leave it out"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(1)->mutable_forward()->set_target_call_square_ns(3);
              }),
              testing::HasSubstr("layers[1].forward.target_call_square_ns: 3; leave it out"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(1)->mutable_forward()->set_divided_row_ns(3);
              }),
              testing::HasSubstr("layers[1].forward.divided_row_ns: 3; leave it out"));
  EXPECT_THAT(MessageOf([](v1::CostProfile* profile) {
                profile->mutable_layers(0)->mutable_forward()->set_divided_row_ns(-3);
              }),
              testing::HasSubstr("layers[0].forward.divided_row_ns: -3; must be finite and at least 0"));
}

TEST(CostModelTest, EfficiencyRaisesTheTimeOfSmallMicroBatches) {
  LayerTime time;
  time.fixed_ns = 5;
  time.target_token_ns = 2;
  time.half_efficiency_tokens = 50;
  EXPECT_DOUBLE_EQ(time(Packed({{0, 50, 0}})), 5 + 2 * 50 * 2);
  EXPECT_DOUBLE_EQ(time(TokenSums()), 5);
}

TEST(CostModelTest, PaddingCostsWhatTheRectangleCosts) {
  const CostModel costs = ModelOf(GptJob(1, 1, v1::POLICY_DYNAMIC));
  LayerCosts layers;
  ASSERT_TRUE(costs.Layers(PaddedSums(2, 0, 200), &layers));
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 1000 + 10 * 400 + 0.01 * 2 * 200 * 200);
}

TEST(CostModelTest, AHeadAtLossPositionsCostsWhatTheLossCounts) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_profile()->mutable_layers(1)->set_loss_tokens_only(true);
  const CostModel costs = ModelOf(job);
  const std::vector<SampleTokens> samples = {{0, 100, 7}, {0, 300, 20}};
  const std::vector<uint32_t> both = {0, 1};
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    LayerCosts layers;
    ASSERT_TRUE(costs.Layers(SumsOf(both, samples, layout), &layers));
    EXPECT_DOUBLE_EQ(layers.forward[kHead], 500 + 5 * 27);
  }
}

TEST(CostModelTest, OnlyAHeadMayRunAtLossPositions) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_profile()->mutable_layers(0)->set_loss_tokens_only(true);
  const auto profile = ProfileFromProto(job.profile(), Architecture::kGpt);
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(profile.status().message()), testing::HasSubstr("layers[0].loss_tokens_only"));
}

TEST(CostModelTest, ATableWithoutClosedFormRefusesWhatLiesBeyondIt) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_PADDING);
  v1::Grid* grid = job.mutable_profile()->mutable_grid();
  for (const uint32_t rows : {1, 2}) grid->add_micro_batch_size(rows);
  for (const uint32_t length : {10, 20}) grid->add_target_length(length);
  v1::LayerCost* layer = job.mutable_profile()->mutable_layers(0);
  layer->clear_forward();
  for (const double ms : {1, 2, 3, 4}) layer->mutable_forward_ms()->add_values(ms);
  const CostModel costs = ModelOf(job);
  LayerCosts layers;
  ASSERT_TRUE(costs.Layers(PaddedSums(2, 0, 15), &layers));
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 3.5e6);
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepAll], 7e6);
  EXPECT_FALSE(costs.Layers(PaddedSums(3, 0, 10), &layers));
  EXPECT_FALSE(costs.Layers(Packed({{0, 10, 0}}), &layers));
}

TEST(CostModelTest, MemoryCountsLayersBoundariesAndTokens) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  const StageMemory memory = costs.Memory(0, Packed({{0, 100, 0}}));
  EXPECT_EQ(costs.StoredBytes(0, memory, {}), 4 * 100 * 100);
  EXPECT_EQ(costs.StoredBytes(0, memory, {0, 3}), 100 * 100 + 3 * 10 * 100);
  EXPECT_EQ(memory.peak, 5000);
  EXPECT_EQ(memory.input, 0);
  // 100 tokens of 4 elements of 4 bytes.
  EXPECT_EQ(memory.output, 1600);
  // Id and position of every token; on the last stage place and label of every position that counts.
  EXPECT_EQ(memory.tokens, 16 * 100);
  EXPECT_EQ(costs.Memory(1, Packed({{0, 100, 0}})).tokens, 0);
  EXPECT_EQ(costs.Memory(1, Packed({{0, 100, 30}})).tokens, 16 * 30);
  // Four layers of 1000 bytes and the embedding of 2000, four bytes of state for each.
  EXPECT_EQ(costs.StaticBytes(0), 4 * (4 * 1000 + 2000));
}

// A layer of 100, 60 or 10 bytes a token that runs backward with `peak` more, made again from its input.
CostModel ModelWithPeak(double peak, double split_backward_peak = 0) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  v1::LayerCost* layer = job.mutable_profile()->mutable_layers(0);
  layer->mutable_stored_selective()->set_target_token_bytes(60);
  layer->mutable_peak()->set_target_token_bytes(peak);
  if (split_backward_peak > 0)
    layer->mutable_split_backward_peak()->set_target_token_bytes(split_backward_peak);
  return ModelOf(job);
}

TEST(CostModelTest, BackwardPassesDoNotMakeAgainWhatWasKept) {
  const CostModel costs = ModelWithPeak(240);
  const StageMemory memory = costs.Memory(0, Packed({{0, 100, 0}}));
  EXPECT_EQ(costs.BackwardPeak(0, memory, {0, 4}), 24000);
  EXPECT_EQ(costs.BackwardPeak(0, memory, {4, 0}), 19000);
  EXPECT_EQ(costs.BackwardPeak(0, memory, {0, 0}), 15000);
  // What it puts aside it has made again, whatever was kept.
  EXPECT_EQ(costs.InputBackwardPeak(0, memory), 15000);
  EXPECT_EQ(memory.backward_peak(), 24000);
}

// 60 bytes of gradients, less than the 100 that the layer keeps.
TEST(CostModelTest, BackwardPassesTakeTheGradientsThatAPeakHas) {
  const CostModel costs = ModelWithPeak(150);
  const StageMemory memory = costs.Memory(0, Packed({{0, 100, 0}}));
  EXPECT_EQ(costs.BackwardPeak(0, memory, {0, 4}), 15000);
  EXPECT_EQ(costs.BackwardPeak(0, memory, {4, 0}), 10000);
  EXPECT_EQ(costs.BackwardPeak(0, memory, {0, 0}), 6000);
  // Nobody says how much of what the layer computed with is still there.
  EXPECT_EQ(costs.InputBackwardPeak(0, memory), 10000);
}

TEST(CostModelTest, SplitBackwardPassesTakeWhatTheProfileSaysOfThem) {
  const auto peak_of_split = [](double bytes) {
    const CostModel costs = ModelWithPeak(150, bytes);
    return costs.InputBackwardPeak(0, costs.Memory(0, Packed({{0, 100, 0}})));
  };
  EXPECT_EQ(peak_of_split(70), 7000);
  EXPECT_EQ(peak_of_split(130), 13000);
  // Not less than a whole backward pass, whose gradients are 60.
  EXPECT_EQ(peak_of_split(40), 6000);
}

TEST(CostModelTest, LayersAboveHaveGivenBackWhatTheyKept) {
  const CostModel costs = ModelWithPeak(240);
  const StageMemory memory = costs.Memory(0, Packed({{0, 100, 0}}));
  // 24,000 of a layer that is made again, when three have given back 10,000 each.
  EXPECT_EQ(costs.BackwardPeak(0, memory, {0, 1}), 15000);
  // Two that keep all, two selective: 19,000 - 20,000.
  EXPECT_EQ(costs.BackwardPeak(0, memory, {2, 0}), 15000);
  // One selective above three: 24,000 - 6,000.
  EXPECT_EQ(costs.BackwardPeak(0, memory, {1, 3}), 19000);
}

TEST(CostModelTest, APeakWithoutGradientsCountsAsItIs) {
  for (const double peak : {50, 100}) {
    const CostModel costs = ModelWithPeak(peak);
    const StageMemory memory = costs.Memory(0, Packed({{0, 100, 0}}));
    const auto bytes = static_cast<int64_t>(100 * peak);
    for (const StageRecompute recompute : {StageRecompute{0, 4}, {4, 0}, {0, 0}, {1, 2}})
      EXPECT_EQ(costs.BackwardPeak(0, memory, recompute), bytes);
    EXPECT_EQ(costs.InputBackwardPeak(0, memory), bytes);
  }
}

TEST(CostModelTest, WhatTheHeadKeepsIsThereUntilTheBackwardPass) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.mutable_profile()->mutable_layers(1)->mutable_stored_none()->set_target_token_bytes(7);
  const CostModel costs = ModelOf(job);
  const StageMemory first = costs.Memory(0, Packed({{0, 100, 0}}));
  EXPECT_EQ(costs.StoredBytes(0, first, {0, 4}), 4 * 1000);
  const StageMemory last = costs.Memory(1, Packed({{0, 100, 0}}));
  EXPECT_EQ(costs.StoredBytes(1, last, {0, 4}), 4 * 1000 + 700);
  // It is gone when products for weights are put aside.
  EXPECT_EQ(costs.PutAsideBytes(1, last), 4 * 10000);
}

TEST(CostModelTest, TheHeadNeedsItsMemoryInTheForwardPass) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.mutable_profile()->mutable_layers(1)->mutable_peak()->set_target_token_bytes(70);
  const CostModel costs = ModelOf(job);
  const StageMemory first = costs.Memory(0, Packed({{0, 100, 0}}));
  EXPECT_EQ(first.forward_peak(), 0);
  const StageMemory last = costs.Memory(1, Packed({{0, 100, 0}}));
  EXPECT_EQ(last.forward_peak(), 7000);
  EXPECT_EQ(costs.BackwardPeak(1, last, {}), 5000);
  EXPECT_EQ(last.backward_peak(), 7000);
}

TEST(CostModelTest, ShardingDividesItsPartOfTheStateByTheReplicas) {
  v1::JobSpec job = GptJob(2, 4, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_shard_optimizer_state(true);
  // 2 bytes stay, 2 are divided by 4.
  EXPECT_EQ(ModelOf(job).StaticBytes(0), 6000 * 5 / 2);
}

TEST(CostModelTest, BoundariesOfT5CarryTheEncoderOutputToEveryDecoderStage) {
  const CostModel costs = ModelOf(T5Job(4, 1, v1::POLICY_DYNAMIC));
  const TokenSums sums = Packed({{30, 7, 0}});
  EXPECT_EQ(costs.BoundaryBytes(0, sums), 30 * 16);
  // Between the last encoder layer and the first decoder layer.
  EXPECT_EQ(costs.BoundaryBytes(1, sums), 30 * 16);
  EXPECT_EQ(costs.BoundaryBytes(2, sums), 37 * 16);
}

CostModel T5WithEmbeddings(std::vector<uint32_t> layers_per_stage) {
  v1::JobSpec job = T5Job(static_cast<uint32_t>(layers_per_stage.size()), 1, v1::POLICY_DYNAMIC);
  for (const uint32_t layers : layers_per_stage) job.mutable_planning()->add_layers_per_stage(layers);
  v1::LayerTime* embedding = job.mutable_profile()->mutable_embedding_forward();
  embedding->set_fixed_ns(7);
  embedding->set_source_token_ns(3);
  embedding->set_target_token_ns(2);
  embedding->set_cross_ns(1);
  embedding->set_half_efficiency_tokens(30);
  return ModelOf(job);
}

int64_t EmbeddingNs(const CostModel& costs, int stage, const TokenSums& sums) {
  LayerCosts with;
  EXPECT_TRUE(costs.Layers(sums, &with));
  LayerCosts without = with;
  without.source_embedding = 0;
  without.target_embedding = 0;
  const int64_t forward = costs.ForwardNs(stage, with) - costs.ForwardNs(stage, without);
  EXPECT_EQ(costs.BackwardNs(stage, with, {}) - costs.BackwardNs(stage, without, {}), forward);
  EXPECT_EQ(costs.WeightNs(stage, with), costs.WeightNs(stage, without));
  return forward;
}

TEST(CostModelTest, T5EmbedsSourceTokensFirstAndTargetTokensBeforeItsFirstDecoderLayer) {
  const TokenSums sums = Packed({{60, 30, 30}});
  // 7 + 3 * 60 * (1 + 30 / 60), and 7 + 2 * 30 * (1 + 30 / 30).
  const int64_t source = 277;
  const int64_t target = 127;
  const CostModel costs = T5WithEmbeddings({2, 3, 2, 1});
  const std::vector<int64_t> times = {source, target, 0, 0};
  const std::vector<int64_t> loaded = {60, 30, 0, 30};
  const std::vector<int64_t> embeddings = {1, 1, 0, 0};
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(EmbeddingNs(costs, stage, sums), times[stage]) << stage;
    EXPECT_EQ(costs.Memory(stage, sums).tokens, 16 * loaded[stage]) << stage;
    const int64_t layers = 1000 * costs.stage(stage).layers();
    const int64_t head = stage == 3 ? 2000 : 0;
    EXPECT_EQ(costs.ParameterBytes(stage), layers + 2000 * embeddings[stage] + head) << stage;
  }
  const CostModel alone = T5WithEmbeddings({8});
  EXPECT_EQ(EmbeddingNs(alone, 0, sums), source + target);
  EXPECT_EQ(alone.Memory(0, sums).tokens, 16 * (60 + 30 + 30));
  EXPECT_EQ(alone.ParameterBytes(0), 8000 + 2 * 2000 + 2000);
}

TEST(CostModelTest, AStepExchangesTheNormAndTheTablesThatStagesShare) {
  EXPECT_EQ(ModelOf(GptJob(4, 1, v1::POLICY_DYNAMIC)).StepBytes(), 8);
  // 32 buckets, 2 heads, float32.
  constexpr int64_t kTable = 32 * 2 * 4;
  EXPECT_EQ(T5WithEmbeddings({8}).StepBytes(), 8);
  EXPECT_EQ(T5WithEmbeddings({4, 4}).StepBytes(), 8);
  EXPECT_EQ(T5WithEmbeddings({3, 5}).StepBytes(), 8 + kTable);
  EXPECT_EQ(T5WithEmbeddings({4, 2, 2}).StepBytes(), 8 + kTable);
  EXPECT_EQ(T5WithEmbeddings({2, 3, 3}).StepBytes(), 8 + 2 * kTable);
  v1::JobSpec job = T5Job(4, 1, v1::POLICY_DYNAMIC);
  job.mutable_model()->set_dtype(v1::DATA_TYPE_FLOAT64);
  job.mutable_profile()->clear_bytes_per_element();
  EXPECT_EQ(ModelOf(job).StepBytes(), 8 + 2 * 2 * kTable);
  job.mutable_model()->set_relative_position_buckets(16);
  EXPECT_EQ(ModelOf(job).StepBytes(), 8 + 2 * kTable);
}

TEST(CostModelTest, ATiedTokenTableIsHeldOnceAndExchangedBetweenStages) {
  const auto tied = [](v1::JobSpec job, bool head, bool embeddings) {
    job.mutable_model()->set_tied_head(head);
    job.mutable_model()->set_tied_embeddings(embeddings);
    return ModelOf(job);
  };
  const v1::JobSpec gpt = GptJob(2, 1, v1::POLICY_DYNAMIC);
  const int64_t elements = int64_t{gpt.model().vocab()} * gpt.model().hidden();
  EXPECT_EQ(tied(gpt, true, false).StepBytes(), 8 + 4 * elements);
  EXPECT_EQ(tied(gpt, true, false).ParameterBytes(1), ModelOf(gpt).ParameterBytes(1));
  v1::JobSpec alone = GptJob(1, 1, v1::POLICY_DYNAMIC);
  // So that there is something to take away.
  alone.mutable_profile()->set_embedding_parameter_bytes(4.0 * static_cast<double>(elements) + 1);
  EXPECT_EQ(tied(alone, true, false).StepBytes(), 8);
  EXPECT_EQ(tied(alone, true, false).ParameterBytes(0), ModelOf(alone).ParameterBytes(0) - 4 * elements);
  // The decoder begins on the second of four stages; biases are shared by none.
  v1::JobSpec t5 = T5Job(4, 1, v1::POLICY_DYNAMIC);
  const std::vector<uint32_t> layers = {t5.model().encoder_layers(), 1, t5.model().decoder_layers() - 2, 1};
  t5.mutable_planning()->mutable_layers_per_stage()->Assign(layers.begin(), layers.end());
  const int64_t table = 4 * int64_t{t5.model().vocab()} * t5.model().hidden();
  for (const bool head : {false, true}) {
    for (const bool embeddings : {false, true}) {
      EXPECT_EQ(tied(t5, head, embeddings).StepBytes() - ModelOf(t5).StepBytes(),
                head || embeddings ? table : 0);
    }
  }
}

TEST(CostModelTest, EveryTargetTokenOfT5CountsForTheLoss) {
  const Job t5 = *JobFromProto(T5Job(1, 1, v1::POLICY_DYNAMIC));
  const Job gpt = *JobFromProto(GptJob(1, 1, v1::POLICY_DYNAMIC));
  const v1::Batch batch = MakeBatch({{5, 7}, {0, 7}, {5, 0}});
  const std::vector<uint32_t> of_t5 = {7, 7, 0};
  const std::vector<uint32_t> of_gpt = {7, 6, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(BatchFromProto(batch, t5)->samples[i].loss, of_t5[i]);
    EXPECT_EQ(BatchFromProto(batch, gpt)->samples[i].loss, of_gpt[i]);
  }
}

TEST(CostModelTest, TransfersBetweenNodesUseTheSlowerLink) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  EXPECT_EQ(costs.TransferNs(1000, 2, 3), 100 + 1000);
  EXPECT_EQ(costs.TransferNs(1000, 3, 4), 500 + 5000);
}

TEST(CostModelTest, AStepHasItsFixedPartOnceWhateverTheRankUpdates) {
  for (const bool divided : {false, true}) {
    v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
    job.mutable_planning()->set_shard_optimizer_state(divided);
    const CostModel without = ModelOf(job);
    job.mutable_profile()->set_optimizer_fixed_ns(1234.5);
    const CostModel with = ModelOf(job);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(with.StepNs(rank), without.StepNs(rank) + 1235);
      EXPECT_EQ(with.GatherNs(rank), without.GatherNs(rank));
    }
    for (int position = 0; position < 2; ++position)
      EXPECT_EQ(with.WholeIterationNs(position), without.WholeIterationNs(position) + 1235);
  }
}

TEST(CostModelTest, TheStepOfAShareHasTheFixedPartToo) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  const CostModel without = ModelOf(job);
  job.mutable_profile()->set_optimizer_fixed_ns(1000);
  const CostModel with = ModelOf(job);
  EXPECT_EQ(with.StepNs(3), without.StepNs(3) + 1000);
  EXPECT_EQ(with.WholeIterationNs(1), without.WholeIterationNs(1) + 1000);
}

TEST(CostModelTest, ADividedStateIsUpdatedInSharesAndGatheredInTheStep) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const CostModel whole = ModelOf(job);
  job.mutable_planning()->set_shard_optimizer_state(true);
  const CostModel divided = ModelOf(job);
  EXPECT_EQ(ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC)).LeastReduceNs(0), 0);
  for (int stage = 0; stage < 2; ++stage) {
    // Replicas of a stage are ranks 0 and 2, or 1 and 3, inside a node and in another.
    const int64_t half = (whole.ParameterBytes(stage) + 1) / 2;
    const int64_t ring_step = whole.TransferNs(half, stage, stage + 2);
    EXPECT_EQ(whole.LeastReduceNs(stage), 2 * ring_step);
    EXPECT_EQ(divided.LeastReduceNs(stage), ring_step);
    const double update = static_cast<double>(half) * whole.profile().optimizer_ns_per_parameter_byte;
    EXPECT_NEAR(static_cast<double>(divided.OptimizerNs(stage) - ring_step), update, 1);
    EXPECT_NEAR(static_cast<double>(whole.OptimizerNs(stage)), 2 * update, 2);
  }
}

}  // namespace
}  // namespace penstock::core
