// Tables of efficiency by tokens, wherever costs are made of a profile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "planner/core/bound/layer_bound.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/adapted_profile.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/placement/load_model.h"
#include "planner/core/planner.h"
#include "planner/core/stages/group_as_rank.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using Points = std::vector<std::pair<double, double>>;

TokenSums PackedSums(const std::vector<SampleTokens>& samples) {
  TokenSums sums;
  for (const SampleTokens& sample : samples) AddPacked(sample, &sums);
  return sums;
}

// A token of a layer takes 10 ns times the factor.
v1::JobSpec JobWith(const Points& points) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  SetEfficiency(points, job.mutable_profile()->mutable_layers(0)->mutable_forward());
  return job;
}

TEST(EfficiencyTest, IsLinearBetweenPointsAndThatOfTheNearestBeyondThem) {
  const std::vector<EfficiencyPoint> points = {{16, 1.5}, {64, 0.9}, {256, 1.1}};
  EXPECT_DOUBLE_EQ(FactorAt(points, 1), 1.5);
  EXPECT_DOUBLE_EQ(FactorAt(points, 16), 1.5);
  EXPECT_DOUBLE_EQ(FactorAt(points, 40), 1.2);
  EXPECT_DOUBLE_EQ(FactorAt(points, 64), 0.9);
  EXPECT_DOUBLE_EQ(FactorAt(points, 112), 0.95);
  EXPECT_DOUBLE_EQ(FactorAt(points, 1e9), 1.1);
  EXPECT_DOUBLE_EQ(FactorAt({{100, 2}}, 7), 2);
  EXPECT_DOUBLE_EQ(FactorAt({}, 7), 1);
}

TEST(EfficiencyTest, MultipliesTermsOfTokensAlone) {
  LayerTime time = {.fixed_ns = 5,
                    .target_token_ns = 10,
                    .target_square_ns = 0.5,
                    .cross_ns = 0.25,
                    .source_token_ns = 4,
                    .source_square_ns = 2,
                    .packed_row_ns = 7,
                    .target_call_square_ns = 3,
                    .source_call_square_ns = 1};
  const TokenSums sums = PackedSums({{20, 30, 0}, {0, 10, 0}});
  const double without = time(sums);
  time.efficiency = {{20, 1.5}, {60, 1.1}};
  // 40 target tokens, 1.3; 20 source tokens, 1.5.
  EXPECT_DOUBLE_EQ(time(sums), without + 0.3 * 10 * 40 + 0.5 * 4 * 20);
}

TEST(EfficiencyTest, CountsInLayersHeadsAndEmbeddingsAndInBothPartsOfABackwardPass) {
  v1::JobSpec job = JobWith({{100, 1.2}, {300, 0.8}});
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  layer.mutable_backward_input()->set_target_token_ns(9);
  layer.mutable_backward_weight()->set_target_token_ns(8);
  SetEfficiency({{100, 2}}, layer.mutable_backward_weight());
  v1::LayerCost& head = *job.mutable_profile()->mutable_layers(1);
  head.set_loss_tokens_only(true);
  SetEfficiency({{100, 0.5}, {200, 1}}, head.mutable_forward());
  job.mutable_profile()->mutable_embedding_forward()->set_target_token_ns(2);
  SetEfficiency({{1, 3}}, job.mutable_profile()->mutable_embedding_forward());
  const CostModel costs = ModelOf(job);
  LayerCosts layers;
  ASSERT_TRUE(costs.Layers(PackedSums({{0, 200, 150}}), &layers));
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 1000 + 10 * 200 + 0.01 * 200 * 200);
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepAll], 9 * 200 + 2 * 8 * 200);
  EXPECT_DOUBLE_EQ(layers.weight[kDecoder], 2 * 8 * 200);
  EXPECT_DOUBLE_EQ(layers.forward[kHead], 500 + 0.75 * 5 * 150);
  EXPECT_DOUBLE_EQ(layers.target_embedding, 3 * 2 * 200);
}

TEST(EfficiencyTest, OfTimesThatAreLongerAmongFewIsWhatAHalfOfItSaysToo) {
  // (1 + 50 / t) at the points, of tokens alone.
  Points points;
  for (double tokens = 1; tokens <= 4096; tokens *= 1.05) points.emplace_back(tokens, 1 + 50 / tokens);
  LayerTime table = LayerTimeFromProto(JobWith(points).profile().layers(0).forward());
  table.target_square_ns = 0;
  LayerTime half = table;
  half.efficiency.clear();
  half.half_efficiency_tokens = 50;
  for (const uint32_t tokens : {1u, 10u, 100u, 3000u})
    EXPECT_NEAR(table(PackedSums({{0, tokens, 0}})) / half(PackedSums({{0, tokens, 0}})), 1, 1e-3) << tokens;
}

std::string MessageOfTable(const Points& points, double half_efficiency = 0) {
  v1::JobSpec job = JobWith(points);
  job.mutable_profile()->mutable_layers(0)->mutable_forward()->set_half_efficiency_tokens(half_efficiency);
  return std::string(ProfileFromProto(job.profile(), Architecture::kGpt).status().message());
}

TEST(EfficiencyTest, WhatIsWrongWithATableIsSaid) {
  using testing::HasSubstr;
  const std::string field = "layers[0].forward.efficiency";
  EXPECT_EQ(MessageOfTable({{16, 1.5}, {64, 0.9}}), "");
  EXPECT_THAT(MessageOfTable({{16, 1.5}}, 20),
              HasSubstr(field + ": stands beside half_efficiency_tokens 20"));
  EXPECT_THAT(MessageOfTable({{0.5, 1}}), HasSubstr(field + "[0].tokens: 0.5; from 1 to 1e+09"));
  EXPECT_THAT(MessageOfTable({{16, 1}, {16, 1}}), HasSubstr(field + "[1].tokens: 16; points must ascend"));
  EXPECT_THAT(MessageOfTable({{16, 0}}), HasSubstr(field + "[0].factor: 0; above 0, at most 100"));
  EXPECT_THAT(MessageOfTable({{16, 101}}), HasSubstr(field + "[0].factor: 101; above 0"));
  EXPECT_THAT(MessageOfTable({{16, std::numeric_limits<double>::quiet_NaN()}}),
              HasSubstr(field + "[0].factor"));
  EXPECT_THAT(MessageOfTable(Points(65, {16, 1})), HasSubstr(field + ": 65 points; use at most 64"));
  // 64 / (2 * 64 - 16) of the factor before.
  EXPECT_THAT(MessageOfTable({{16, 1.75}, {64, 0.99}}),
              HasSubstr(field + "[1].factor: 0.99; behind the point before it at least 1:"));
  EXPECT_EQ(MessageOfTable({{16, 1.75}, {64, 1}}), "");
}

TEST(EfficiencyTest, OfAllFormsIsChecked) {
  v1::JobSpec job = JobWith({});
  const Points wrong = {{0, 1}};
  const auto message = [&](v1::LayerTime* time) {
    SetEfficiency(wrong, time);
    const auto profile = ProfileFromProto(job.profile(), Architecture::kGpt);
    time->clear_efficiency();
    return std::string(profile.status().message());
  };
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  layer.mutable_backward_weight();
  v1::TensorCost& tensor = *layer.add_tensor();
  tensor.set_degree(2);
  tensor.set_efficiency(1);
  EXPECT_THAT(message(layer.mutable_backward_input()), testing::HasSubstr("backward_input.efficiency[0]"));
  EXPECT_THAT(message(tensor.mutable_forward()), testing::HasSubstr("tensor[0].forward.efficiency[0]"));
  EXPECT_THAT(message(job.mutable_profile()->mutable_layers(1)->mutable_forward()),
              testing::HasSubstr("layers[1].forward.efficiency[0]"));
  EXPECT_THAT(message(job.mutable_profile()->mutable_embedding_forward()),
              testing::HasSubstr("embedding_forward.efficiency[0]"));
}

TEST(EfficiencyTest, TimeNeverFallsAsThereAreMoreTokens) {
  // As steep as tables may be.
  const Points points = {{10, 2}, {40, 8.0 / 7}, {44, 8.0 / 7 * 44 / 48}, {1000, 0.55}};
  ASSERT_EQ(MessageOfTable(points), "");
  const CostModel costs = ModelOf(JobWith(points));
  double before = 0;
  for (uint32_t tokens = 1; tokens < 1200; ++tokens) {
    LayerCosts layers;
    ASSERT_TRUE(costs.Layers(PackedSums({{0, tokens, 0}}), &layers));
    EXPECT_GE(layers.forward[kDecoder], before) << tokens;
    before = layers.forward[kDecoder];
  }
}

TEST(EfficiencyTest, ABoundTakesThatOfTheNumberOfTokensThatSuitsBest) {
  const CostModel costs = ModelOf(JobWith({{16, 1.5}, {64, 0.9}, {256, 1.1}}));
  const LayerBound bound = BoundLayer(costs, kDecoder, RecomputeMode::kNone, /*packed=*/true);
  const TokenSums sums = PackedSums({{0, 100, 0}});
  EXPECT_DOUBLE_EQ(bound.Linear(sums), 0.9 * 10 * 100 + 0.01 * 100 * 100);
  EXPECT_DOUBLE_EQ(bound.Rate().target, 9);
  EXPECT_DOUBLE_EQ(bound.Overhead(sums), 1000);
}

TEST(EfficiencyTest, OneFactorForAllTokensIsAsGoodAsOtherCosts) {
  v1::JobSpec same = JobWith({});
  same.mutable_profile()->mutable_layers(0)->mutable_forward()->set_target_token_ns(12.5);
  const v1::Batch batch = MakeBatch({{0, 100}, {0, 30}, {0, 7}, {0, 260}});
  const auto plan_of = [&](const v1::JobSpec& job) {
    return (*Planner::Create(job))->MakePlan(batch).value();
  };
  const v1::Plan plan = plan_of(JobWith({{30, 1.25}, {200, 1.25}}));
  EXPECT_EQ(plan.predicted().makespan_ns(), plan_of(same).predicted().makespan_ns());
  EXPECT_EQ(plan.lower_bound_ns(), plan_of(same).lower_bound_ns());
}

TEST(EfficiencyTest, OfAGroupAsOneRankIsThatOfItsShares) {
  v1::JobSpec spec = JobWith({{16, 1.5}, {64, 0.9}});
  spec.mutable_mesh()->set_context(2);
  const Job job = JobFromProto(spec).value();
  const Profile profile = ProfileFromProto(spec.profile(), Architecture::kGpt).value();
  const LayerTime group = ProfileOfGroup(profile, job).layers[kDecoder].forward;
  ASSERT_EQ(group.efficiency.size(), 2u);
  EXPECT_EQ(group.efficiency[0].tokens, 32);
  EXPECT_EQ(group.efficiency[1].factor, 0.9);
  EXPECT_DOUBLE_EQ(group(PackedSums({{0, 80, 0}})) - 0.01 * 80 * 80 / 2,
                   profile.layers[kDecoder].forward(PackedSums({{0, 40, 0}})) - 0.01 * 40 * 40);
}

TEST(EfficiencyTest, CountsWhereRowsArePlacedOnContextRanks) {
  v1::JobSpec job = JobWith({{16, 1.5}, {64, 0.9}});
  job.mutable_mesh()->set_context(2);
  SetEfficiency({{50, 1.25}}, job.mutable_profile()->mutable_layers(1)->mutable_forward());
  const CostModel costs = ModelOf(job);
  const LoadModel loads(costs);
  LayerCosts few, many;
  ASSERT_TRUE(costs.Layers(PackedSums({{0, 16, 0}}), &few));
  ASSERT_TRUE(costs.Layers(PackedSums({{0, 64, 0}}), &many));
  const auto pass = [&](const LayerCosts& layers) {
    return static_cast<double>(costs.ForwardNs(0, layers) + costs.BackwardNs(0, layers, {}));
  };
  const auto load = [&](double tokens) {
    return loads.TimeNs({.tokens = tokens, .squares = tokens * tokens, .rows = 1});
  };
  // What passes take whatever is placed is no load.
  EXPECT_NEAR(load(64) - load(16), pass(many) - pass(few), 2);
}

TEST(EfficiencyTest, OfAdaptersIsThatOfTheForwardPass) {
  v1::ProfileFile file;
  const v1::JobSpec job = JobWith({{16, 1.5}, {64, 0.9}});
  *file.mutable_model() = job.model();
  *file.mutable_profile() = job.profile();
  v1::LayerCost& layer = *file.mutable_profile()->mutable_layers(0);
  layer.mutable_backward_weight()->set_target_token_ns(8);
  SetEfficiency({{30, 1.1}}, layer.mutable_backward_input());
  v1::Adapters adapters;
  adapters.set_rank(2);
  adapters.add_targets(v1::LINEAR_LAYER_QUERY);
  ASSERT_EQ(AdaptProfile(adapters, &file).message(), "");
  const v1::LayerCost& adapted = file.profile().layers(0);
  EXPECT_EQ(adapted.forward().efficiency_size(), 2);
  EXPECT_EQ(adapted.backward_weight().efficiency_size(), 2);
  EXPECT_EQ(adapted.backward_input().efficiency(0).tokens(), 30);
}

}  // namespace
}  // namespace penstock::core
