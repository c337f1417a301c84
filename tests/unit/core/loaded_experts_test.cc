// Costs of routers that fill one of the ranks which divide experts more than the others, against values
// worked out by hand (execution.md, sections 7 and 8).
#include "planner/core/cost/loaded_experts.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "planner/core/cost/cost_model.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// 4 experts over 4 ranks; a token goes to one. Of the multiplications for a token, in units of the width, the
// expert has 2 * 10, the router 4, queries and outputs 2 * 4, keys and values 2 * 2 * 2.
v1::JobSpec ExpertsGpt() {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  DivideExperts(job);
  return job;
}

v1::JobSpec WithLoad(v1::JobSpec job, uint32_t ranks, double fullest) {
  v1::ExpertLoad* const load = job.mutable_profile()->add_expert_loads();
  load->set_ranks(ranks);
  load->set_fullest(fullest);
  return job;
}

// Of a rank with so many tokens of one sample.
LayerCosts CostsOfRank(const CostModel& costs, uint32_t tokens) {
  TokenSums sums;
  AddPacked({.target = tokens}, &sums);
  LayerCosts layers;
  EXPECT_TRUE(costs.Layers(WholeShare(sums), &layers));
  return layers;
}

StageMemory MemoryOfRank(const CostModel& costs, uint32_t tokens) {
  TokenSums sums;
  AddPacked({.target = tokens}, &sums);
  return costs.Memory(0, WholeShare(sums));
}

constexpr double kShare = 20.0 / (20 + 4 + 8 + 8);

TEST(LoadedExpertsTest, WhatDependsOnTokensTakesLongerByThePartOfTheExperts) {
  const CostModel even = ModelOf(ExpertsGpt());
  const CostModel uneven = ModelOf(WithLoad(ExpertsGpt(), 4, 3));
  const LayerCosts before = CostsOfRank(even, 100), after = CostsOfRank(uneven, 100);
  // 1000 ns + 10 ns a token + 0.01 ns a squared token.
  EXPECT_DOUBLE_EQ(before.forward[kDecoder], 2100);
  EXPECT_DOUBLE_EQ(after.forward[kDecoder], 1100 + 1000 * (1 + 2 * kShare));
  EXPECT_DOUBLE_EQ(after.backward[kDecoder][kKeepAll], 2 * after.forward[kDecoder]);
  EXPECT_DOUBLE_EQ(after.forward[kHead], before.forward[kHead]);
}

TEST(LoadedExpertsTest, RowsTakeAsLongAsThoseOfTheFullestRankAndAreAsManyAsEver) {
  const LayerCosts before = CostsOfRank(ModelOf(ExpertsGpt()), 100);
  const LayerCosts after = CostsOfRank(ModelOf(WithLoad(ExpertsGpt(), 4, 3)), 100);
  // 100 rows of 4 floats, three quarters of which go to other ranks; 1 byte a nanosecond after 100 ns.
  EXPECT_EQ(before.exchange.rows.bytes, 1200);
  EXPECT_EQ(before.exchange.rows.ns, 1300);
  EXPECT_EQ(after.exchange.rows.bytes, 1200);
  EXPECT_EQ(after.exchange.rows.ns, 100 + 3 * 1200);
  EXPECT_EQ(after.exchange.row_gradients.ns, 100 + 3 * 2400);
}

TEST(LoadedExpertsTest, TheFullestRankKeepsMore) {
  const StageMemory before = MemoryOfRank(ModelOf(ExpertsGpt()), 100);
  const StageMemory after = MemoryOfRank(ModelOf(WithLoad(ExpertsGpt(), 4, 3)), 100);
  EXPECT_EQ(before.rows, 100 * (16 + 16));
  EXPECT_EQ(after.rows, 3 * before.rows);
  // Of each of two rows more for a token: what goes in, and what two matrices make or read, floats.
  constexpr int64_t kMore = 2 * 100 * (4 + 2 * 10) * 4;
  EXPECT_EQ(after.stored_layer[kDecoder][kKeepAll], before.stored_layer[kDecoder][kKeepAll] + kMore);
  EXPECT_EQ(after.stored_layer[kDecoder][kKeepInput], before.stored_layer[kDecoder][kKeepInput]);
  EXPECT_EQ(after.peak, before.peak + kMore);
}

TEST(LoadedExpertsTest, ExpertsHaveMoreOfTheProductsThatAreMadeBesideRows) {
  v1::JobSpec job = ExpertsGpt();
  job.mutable_profile()->mutable_cluster()->set_exchange_overlap(1);
  const CostModel even = ModelOf(job), uneven = ModelOf(WithLoad(job, 4, 3));
  const PartCosts before = even.CostsOfPart(CostsOfRank(even, 100));
  const PartCosts after = uneven.CostsOfPart(CostsOfRank(uneven, 100));
  EXPECT_EQ(before.experts_ns, static_cast<int64_t>(before.with_experts.weights_ns * kShare));
  EXPECT_EQ(after.experts_ns,
            static_cast<int64_t>(after.with_experts.weights_ns * 3 * kShare / (1 + 2 * kShare)));
}

TEST(LoadedExpertsTest, LoadsOfOtherNumbersOfRanksChangeNothing) {
  const CostModel even = ModelOf(ExpertsGpt()), other = ModelOf(WithLoad(ExpertsGpt(), 2, 2));
  EXPECT_EQ(other.ForwardNs(0, CostsOfRank(other, 100)), even.ForwardNs(0, CostsOfRank(even, 100)));
  EXPECT_EQ(MemoryOfRank(other, 100).rows, MemoryOfRank(even, 100).rows);
  v1::JobSpec alone = WithLoad(ExpertsGpt(), 4, 3);
  alone.mutable_mesh()->clear_expert();
  v1::JobSpec without = ExpertsGpt();
  without.mutable_mesh()->clear_expert();
  const CostModel all = ModelOf(alone), same = ModelOf(without);
  EXPECT_EQ(all.ForwardNs(0, CostsOfRank(all, 100)), same.ForwardNs(0, CostsOfRank(same, 100)));
}

TEST(LoadedExpertsTest, AProfileIsLoadedOnce) {
  const v1::JobSpec spec = WithLoad(ExpertsGpt(), 4, 3);
  const CostModel costs = ModelOf(spec);
  EXPECT_TRUE(costs.profile().expert_loads.empty());
  EXPECT_EQ(costs.profile().fullest_experts, 3);
  EXPECT_DOUBLE_EQ(costs.profile().layers[kDecoder].forward.target_token_ns, 10 * (1 + 2 * kShare));
}

}  // namespace
}  // namespace penstock::core
