#include "planner/cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/strategies/strategy_planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Batch UnevenBatch() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 12; ++i) lengths.emplace_back(i % 5 * 40, 4 + i * i % 90);
  return core::MakeBatch(lengths);
}

struct Explained {
  v1::PlannedBatch planned;
  Explanation explanation;

  // Fails the test where there is none.
  WhatIf Find(const std::string& condition) const {
    for (const WhatIf& what_if : explanation.what_ifs)
      if (what_if.condition == condition) return what_if;
    ADD_FAILURE() << "no what-if '" << condition << "'";
    return {};
  }
  bool Has(const std::string& condition) const {
    return std::any_of(explanation.what_ifs.begin(), explanation.what_ifs.end(),
                       [&](const WhatIf& what_if) { return what_if.condition == condition; });
  }
  double makespan_ms() const { return static_cast<double>(planned.plan().predicted().makespan_ns()) / 1e6; }
};

// With little effort: what is tested is not how good the plans are.
Explained PlanAndExplain(v1::JobSpec job) {
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  Explained result;
  *result.planned.mutable_batch() = UnevenBatch();
  const auto planner = core::StrategyPlanner::Create(job);
  EXPECT_TRUE(planner.ok()) << planner.status();
  if (!planner.ok()) return result;
  auto plan = (*planner)->MakePlan(result.planned.batch());
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return result;
  *result.planned.mutable_plan() = *std::move(plan);
  auto explanation = Explain(job, result.planned);
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  if (explanation.ok()) result.explanation = *std::move(explanation);
  return result;
}

v1::JobSpec ExpertsJob() {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(4);
  job.mutable_mesh()->set_expert(4);
  job.mutable_model()->set_experts(4);
  job.mutable_model()->set_experts_per_token(2);
  job.mutable_model()->set_feed_forward_biases(v1::BIASES_NONE);
  // Links that cost little: what is gained is computing.
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e11);
  return job;
}

TEST(Explain, AnUnevenRouterIsNamedWithWhatItCosts) {
  v1::JobSpec job = ExpertsJob();
  EXPECT_FALSE(PlanAndExplain(job).Has("experts used evenly"));
  v1::ExpertLoad* const load = job.mutable_profile()->add_expert_loads();
  load->set_ranks(4);
  load->set_fullest(4);
  const Explained explained = PlanAndExplain(job);
  const WhatIf even = explained.Find("experts used evenly");
  EXPECT_GT(even.gain, 0.2);
  EXPECT_THAT(even.advice, HasSubstr("--router-balance-loss"));
  EXPECT_THAT(Conclusion(explained.explanation), HasSubstr("Most to gain: experts used evenly"));
}

TEST(Explain, ConditionsThatOnlyRelaxAreNeverSlowerThanThePlan) {
  for (const uint32_t pipeline : {1U, 4U}) {
    v1::JobSpec job = core::GptJob(pipeline, 2, v1::POLICY_DYNAMIC);
    job.mutable_planning()->set_memory_limit_bytes(120'000);
    const Explained explained = PlanAndExplain(job);
    for (const char* condition :
         {"unlimited memory", "free transfers", "effort thorough", "optimizer state divided over replicas"}) {
      const WhatIf what_if = explained.Find(condition);
      EXPECT_LE(what_if.makespan_ms, explained.makespan_ms()) << condition;
      EXPECT_GE(what_if.gain, 0) << condition;
    }
  }
}

TEST(Explain, MemoryThatForcesRecomputeCostsTime) {
  v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
  const Explained plenty = PlanAndExplain(job);
  EXPECT_NEAR(plenty.Find("unlimited memory").gain, 0, 0.02);
  // Forced, so that it does not depend on what the search makes of a tight limit.
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_FULL);
  const Explained forced = PlanAndExplain(job);
  EXPECT_GT(MeanOf(forced.explanation.ranks)[kRecompute], 0);
  EXPECT_GT(forced.Find("recompute auto").gain, 0.05);
  EXPECT_FALSE(plenty.Has("recompute auto"));
}

TEST(Explain, SlowLinksMakeFreeTransfersWorthwhile) {
  v1::JobSpec job = core::GptJob(4, 1, v1::POLICY_DYNAMIC);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e8);
  job.mutable_profile()->mutable_cluster()->set_intra_node_latency_ns(20'000);
  const Explained explained = PlanAndExplain(job);
  EXPECT_GT(explained.Find("free transfers").gain, 0.02);
}

TEST(Explain, AsksForNoPaddingWhereThereIsPaddingOnly) {
  v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(6);
  const Explained padded = PlanAndExplain(job);
  EXPECT_GT(padded.Find("no padding").gain, 0.1);
  EXPECT_GT(padded.Find("policy dynamic").gain, 0.1);
  const Explained packed = PlanAndExplain(core::GptJob(2, 1, v1::POLICY_PACKED));
  EXPECT_FALSE(packed.Has("no padding"));
  EXPECT_FALSE(PlanAndExplain(core::GptJob(2, 1, v1::POLICY_DYNAMIC)).Has("policy dynamic"));
}

TEST(Explain, AsksForAnotherStageSplitWhereOneIsFixed) {
  v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
  for (const uint32_t layers : {1U, 7U}) job.mutable_planning()->add_layers_per_stage(layers);
  const Explained explained = PlanAndExplain(job);
  EXPECT_GT(explained.Find("stage split auto").gain, 0.2);
  EXPECT_THAT(Conclusion(explained.explanation), HasSubstr("--stage-split auto"));
}

TEST(Explain, SaysWhatTwiceTheContextRanksBringWhereOneSampleHoldsUpAll) {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(2);
  const Explained explained = PlanAndExplain(job);
  const WhatIf twice = explained.Find("twice the context ranks, and GPUs");
  EXPECT_EQ(twice.kind, WhatIfKind::kPlan);
  EXPECT_EQ(twice.ranks, 2);
  EXPECT_EQ(twice.advice, "use --cp 4");
  EXPECT_GT(twice.makespan_ms, 0);
  // The profile has no figures of tensor ranks.
  EXPECT_FALSE(explained.Has("twice the tensor ranks, and GPUs"));
}

TEST(Explain, AsksForTwiceTheTensorRanksWhereTheProfileAndTheHeadsAllowThem) {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_PACKED);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    layer.clear_tensor();
    v1::TensorCost& cost = *layer.add_tensor();
    cost.set_degree(2);
    cost.set_efficiency(0.9);
  }
  EXPECT_EQ(PlanAndExplain(job).Find("twice the tensor ranks, and GPUs").advice, "use --tp 2");
  job.mutable_mesh()->set_tensor(2);
  EXPECT_FALSE(PlanAndExplain(job).Has("twice the tensor ranks, and GPUs"));
}

TEST(Explain, SaysHowEachOfSeveralMeshesDoes) {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->clear_layers_per_stage();
  *job.mutable_mesh() = MakeMesh(1, 1, 1, 2);
  v1::Strategy& strategy = *job.add_strategies();
  *strategy.add_meshes()->mutable_mesh() = job.mesh();
  *strategy.add_meshes()->mutable_mesh() = MakeMesh(3, 1, 1, 1);
  const Explained explained = PlanAndExplain(job);
  const Explanation& explanation = explained.explanation;
  ASSERT_EQ(explanation.meshes.size(), 2);
  EXPECT_EQ(explanation.meshes[0].name, "pp 1 x dp 1 x cp 2");
  EXPECT_EQ(explanation.meshes[1].first_rank, 2);
  EXPECT_EQ(explanation.meshes[1].ranks, 3);
  ASSERT_EQ(explanation.ranks.size(), 5);
  for (const TimeSplit& rank : explanation.ranks)
    EXPECT_NEAR(std::accumulate(rank.begin(), rank.end(), 0.0) / 1e6, explained.makespan_ms(), 1e-6);
  // The mesh that ends last waits for none.
  EXPECT_NEAR(std::min(explanation.ranks[0][kImbalance], explanation.ranks[4][kImbalance]), 0, 1);
  EXPECT_THAT(ToText(explanation), HasSubstr("pp 3 x dp 1"));
  const nlohmann::ordered_json json = ToJson(explanation);
  EXPECT_EQ(json["time"]["meshes"].size(), 2);
  EXPECT_EQ(json["time"]["meshes"][0]["mesh"], "pp 1 x dp 1 x cp 2");
  EXPECT_EQ(explained.Find("unlimited memory").kind, WhatIfKind::kPlan);
  // Shares divide it already; and which mesh would have more ranks, advise is asked.
  EXPECT_FALSE(explained.Has("optimizer state divided over replicas"));
  EXPECT_FALSE(explained.Has("twice the context ranks, and GPUs"));
}

TEST(Explain, SaysWhatPlanAndFastestPlanTakeUnderTheNoiseOfTheProfile) {
  v1::JobSpec job = core::GptJob(4, 2, v1::POLICY_DYNAMIC);
  EXPECT_FALSE(PlanAndExplain(job).explanation.noise.has_value());
  job.mutable_profile()->set_pass_noise(0.2);
  const Explained explained = PlanAndExplain(job);
  const std::optional<NoiseComparison>& noise = explained.explanation.noise;
  ASSERT_TRUE(noise.has_value());
  EXPECT_DOUBLE_EQ(noise->plan.exact_ms, explained.makespan_ms());
  EXPECT_LE(noise->plan.exact_ms, 1.01 * noise->fastest.exact_ms);
  for (const NoisyTimes& times : {noise->plan, noise->fastest}) {
    EXPECT_GT(times.mean_ms, times.exact_ms);
    EXPECT_GT(times.late_ms, times.mean_ms);
  }
  EXPECT_THAT(ToText(explained.explanation), HasSubstr("under noise of 20.0% this plan takes"));
  const nlohmann::ordered_json json = ToJson(explained.explanation);
  EXPECT_EQ(json["noise"]["pass_noise"], 0.2);
  EXPECT_EQ(json["noise"]["plan"]["mean_ms"], noise->plan.mean_ms);
}

TEST(Explain, AT5HasNoContextRanksToDouble) {
  EXPECT_FALSE(PlanAndExplain(core::T5Job(1, 1, v1::POLICY_PACKED)).Has("twice the context ranks, and GPUs"));
}

TEST(Explain, WhatNeedsMoreGpusIsSaidApart) {
  Explanation explanation;
  explanation.what_ifs = {
      {.condition = "context", .makespan_ms = 55, .gain = 0.45, .ranks = 2, .advice = "use --cp 4"},
      {.condition = "memory", .makespan_ms = 90, .gain = 0.1, .advice = "shard"}};
  EXPECT_EQ(Conclusion(explanation),
            "Most to gain: memory, 10.0%: shard. On twice as many GPUs, 45.0%: use --cp 4.");
}

TEST(Explain, SaysWhatIsAPlanAnEstimateAndABound) {
  const Explained explained = PlanAndExplain(core::GptJob(4, 2, v1::POLICY_DYNAMIC));
  const WhatIf bound = explained.Find("lower bound");
  EXPECT_EQ(bound.kind, WhatIfKind::kBound);
  EXPECT_DOUBLE_EQ(bound.makespan_ms, static_cast<double>(explained.planned.plan().lower_bound_ns()) / 1e6);
  const WhatIf even = explained.Find("all ranks equally busy after the fill");
  EXPECT_EQ(even.kind, WhatIfKind::kEstimate);
  const TimeSplit mean = MeanOf(explained.explanation.ranks);
  EXPECT_DOUBLE_EQ(even.makespan_ms, (BusyNs(mean) + mean[kFill]) / 1e6);
  EXPECT_EQ(explained.Find("twice the samples, per batch").kind, WhatIfKind::kPlan);
}

TEST(Explain, NamesEachConditionBeforeItIsPlanned) {
  const v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_PACKED);
  const Explained explained = PlanAndExplain(job);
  std::vector<std::string> named;
  const auto what_ifs = AskWhatIf(job, explained.planned, explained.explanation.ranks,
                                  [&](const std::string& condition) { named.push_back(condition); });
  ASSERT_TRUE(what_ifs.ok()) << what_ifs.status();
  std::vector<std::string> planned;
  for (const WhatIf& what_if : *what_ifs)
    if (what_if.kind == WhatIfKind::kPlan) planned.push_back(what_if.condition);
  EXPECT_THAT(named, testing::UnorderedElementsAreArray(planned));
}

TEST(Explain, SortsByGain) {
  const Explained explained = PlanAndExplain(core::GptJob(4, 1, v1::POLICY_TOKEN_BUDGET));
  const auto& what_ifs = explained.explanation.what_ifs;
  EXPECT_GE(what_ifs.size(), 6u);
  EXPECT_TRUE(std::is_sorted(what_ifs.begin(), what_ifs.end(),
                             [](const WhatIf& a, const WhatIf& b) { return a.gain > b.gain; }));
}

TEST(Explain, ConcludesWithThePlansThatGainMost) {
  Explanation explanation;
  explanation.what_ifs = {
      {.condition = "lower bound", .kind = WhatIfKind::kBound, .makespan_ms = 70, .gain = 0.3},
      {.condition = "even", .kind = WhatIfKind::kEstimate, .makespan_ms = 80, .gain = 0.2, .advice = "split"},
      {.condition = "memory", .makespan_ms = 90, .gain = 0.1, .advice = "shard"},
      {.condition = "effort", .makespan_ms = 98, .gain = 0.02, .advice = "try"}};
  EXPECT_EQ(Conclusion(explanation), "Most to gain: memory, 10.0%: shard. Next: effort, 2.0%: try.");
  explanation.what_ifs[3].gain = 0.004;
  EXPECT_EQ(Conclusion(explanation), "Most to gain: memory, 10.0%: shard.");
  explanation.what_ifs[2].gain = 0.005;
  EXPECT_THAT(Conclusion(explanation), HasSubstr("No other plan gains 1 %"));
  EXPECT_THAT(Conclusion(explanation), HasSubstr("about 20.0% would be gained: split."));
  explanation.what_ifs.resize(1);
  EXPECT_THAT(Conclusion(explanation), HasSubstr("Nothing gains 1 %"));
}

TEST(Explain, TextLeavesOutPartsThatNoRankHas) {
  Explanation explanation;
  TimeSplit split = {};
  split[kUseful] = 75;
  split[kFill] = 25;
  explanation.ranks = {split};
  explanation.what_ifs = {{.condition = "unlimited memory"}};
  const std::string text = ToText(explanation);
  EXPECT_THAT(text, HasSubstr("useful work          75.0%"));
  EXPECT_THAT(text, HasSubstr("waits: fill          25.0%"));
  EXPECT_THAT(text, Not(HasSubstr("padding")));
  EXPECT_THAT(text, HasSubstr("no plan"));
}

TEST(Explain, JsonSharesAddUpToOne) {
  const Explained explained = PlanAndExplain(core::GptJob(2, 2, v1::POLICY_PADDING));
  const nlohmann::ordered_json json = ToJson(explained.explanation);
  double sum = 0;
  for (const auto& share : json["time"]["mean"]) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_LT(json["time"]["busiest"]["rank"], 4);
  EXPECT_EQ(json["what_if"].size(), explained.explanation.what_ifs.size());
  EXPECT_EQ(json["conclusion"], Conclusion(explained.explanation));
}

}  // namespace
}  // namespace penstock::cli
