// Limits of memory that differ by rank: plans keep to each, samples go where there is room, and layers and
// shares where there is more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/audit/audit_plan.h"
#include "planner/core/planner.h"
#include "planner/core/strategies/choose_share_weights.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kPlenty = int64_t{1} << 40;

void LimitRank(uint32_t rank, int64_t bytes, v1::JobSpec* job) {
  v1::RankMemoryLimit* limit = job->mutable_planning()->add_rank_memory_limits();
  limit->set_rank(rank);
  limit->set_bytes(bytes);
}

std::vector<int64_t> PeaksOf(const v1::Plan& plan) {
  std::vector<int64_t> peaks;
  for (const v1::RankPrediction& rank : plan.predicted().ranks()) peaks.push_back(rank.peak_memory_bytes());
  return peaks;
}

int64_t MostPeak(const v1::Plan& plan) {
  const std::vector<int64_t> peaks = PeaksOf(plan);
  return *std::ranges::max_element(peaks);
}

std::vector<size_t> SamplesOfReplicas(const v1::Plan& plan) {
  std::vector<size_t> samples;
  for (const v1::Replica& replica : plan.replicas()) {
    samples.push_back(0);
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      samples.back() += micro_batch.samples_size();
  }
  return samples;
}

// Layers of the rank's passes that compute more than once, of all micro-batches.
uint32_t RecomputedLayers(const v1::Plan& plan, int replica, int stage) {
  uint32_t layers = 0;
  for (const v1::MicroBatch& micro_batch : plan.replicas(replica).micro_batches())
    layers += micro_batch.recompute(stage).full_layers();
  return layers;
}

// Sound by the checker and by the audit, and within the limit of each rank.
v1::Plan PlanWithin(const v1::JobSpec& job, const v1::Batch& batch) {
  const auto planner = StrategyPlanner::Create(job);
  EXPECT_TRUE(planner.ok()) << planner.status();
  if (!planner.ok()) return {};
  absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  for (const Violation& violation : CheckPlan(batch, *plan)) ADD_FAILURE() << violation.message;
  const auto audited = AuditPlan(batch, *plan, job.profile());
  EXPECT_TRUE(audited.ok()) << audited.status();
  if (audited.ok())
    for (const Violation& violation : *audited) ADD_FAILURE() << violation.message;
  std::vector<int64_t> limits(plan->programs_size(), job.planning().memory_limit_bytes());
  for (const v1::RankMemoryLimit& limit : job.planning().rank_memory_limits())
    limits[limit.rank()] = limit.bytes();
  for (int rank = 0; rank < plan->programs_size(); ++rank) {
    EXPECT_EQ(plan->programs(rank).memory_limit_bytes(), limits[rank]) << "rank " << rank;
    EXPECT_LE(PeaksOf(*plan)[rank], limits[rank]) << "rank " << rank;
  }
  EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns());
  return *std::move(plan);
}

v1::Batch EightSamples() {
  return MakeBatch({{0, 300}, {0, 200}, {0, 250}, {0, 100}, {0, 80}, {0, 60}, {0, 260}, {0, 190}});
}

TEST(RankMemoryTest, ARankWithLessRecomputesAndTheOthersDoNot) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  const v1::Batch batch = MakeBatch({{0, 300}});
  const v1::Plan roomy = PlanWithin(job, batch);
  ASSERT_EQ(RecomputedLayers(roomy, 0, 0) + RecomputedLayers(roomy, 0, 1), 0U);
  const int64_t parameters = roomy.programs(1).static_memory_bytes();
  LimitRank(1, parameters + (PeaksOf(roomy)[1] - parameters) / 2, &job);
  const v1::Plan plan = PlanWithin(job, batch);
  EXPECT_GT(RecomputedLayers(plan, 0, 1), 0U);
  EXPECT_EQ(RecomputedLayers(plan, 0, 0), 0U);
  EXPECT_GT(PeaksOf(plan)[0], PeaksOf(plan)[1]);
}

TEST(RankMemoryTest, ALimitOfEveryRankIsAsOneOfAll) {
  v1::JobSpec common = GptJob(2, 2, v1::POLICY_DYNAMIC);
  common.mutable_planning()->set_memory_limit_bytes(80'000);
  v1::JobSpec each = common;
  each.mutable_planning()->set_memory_limit_bytes(1);
  for (uint32_t rank = 0; rank < 4; ++rank) LimitRank(rank, 80'000, &each);
  v1::Plan one = PlanWithin(common, EightSamples());
  v1::Plan other = PlanWithin(each, EightSamples());
  for (v1::Plan* plan : {&one, &other}) {
    plan->clear_options();
    plan->clear_content_hash();
  }
  EXPECT_EQ(one.SerializeAsString(), other.SerializeAsString());
}

TEST(RankMemoryTest, MoreThanTheOthersHaveIsUsed) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_NONE);
  const v1::Plan alone = PlanWithin(GptJob(1, 1, v1::POLICY_DYNAMIC), MakeBatch({{0, 200}}));
  job.mutable_planning()->set_memory_limit_bytes(MostPeak(alone));
  const v1::Batch batch = MakeBatch({{0, 1000}, {0, 100}, {0, 150}, {0, 90}});
  const auto refusing = Planner::Create(job);
  ASSERT_TRUE(refusing.ok()) << refusing.status();
  ASSERT_FALSE((*refusing)->MakePlan(batch).ok());
  LimitRank(0, kPlenty, &job);
  const v1::Plan plan = PlanWithin(job, batch);
  // The long sample is where it fits.
  ASSERT_EQ(plan.replicas_size(), 2);
  bool found = false;
  for (const v1::MicroBatch& micro_batch : plan.replicas(0).micro_batches())
    found = found || std::ranges::find(micro_batch.samples(), 0) != micro_batch.samples().end();
  EXPECT_TRUE(found);
  EXPECT_GT(SamplesOfReplicas(plan)[1], 0U);
}

TEST(RankMemoryTest, AReplicaWithoutRoomForAnySampleStaysEmpty) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  const v1::Plan alone = PlanWithin(GptJob(1, 1, v1::POLICY_DYNAMIC), MakeBatch({{0, 100}}));
  LimitRank(1, alone.programs(0).static_memory_bytes() + 1000, &job);
  const v1::Plan plan = PlanWithin(job, EightSamples());
  EXPECT_THAT(SamplesOfReplicas(plan), testing::ElementsAre(8, 0));
}

TEST(RankMemoryTest, EveryPolicyPutsSamplesWhereTheyFit) {
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                  v1::POLICY_TOKEN_BUDGET, v1::POLICY_DYNAMIC}) {
    SCOPED_TRACE(v1::Policy_Name(policy));
    v1::JobSpec job = GptJob(2, 2, policy);
    const v1::Plan alone = PlanWithin(GptJob(2, 1, policy), MakeBatch({{0, 40}}));
    LimitRank(3, PeaksOf(alone)[1], &job);
    const v1::Batch batch = MakeBatch({{0, 400}, {0, 30}, {0, 200}, {0, 20}, {0, 350}, {0, 25}});
    const v1::Plan plan = PlanWithin(job, batch);
    // Rows are as long as the longest sample.
    if (policy != v1::POLICY_CONCATENATED) {
      EXPECT_GT(SamplesOfReplicas(plan)[1], 0U);
    }
    for (const v1::MicroBatch& micro_batch : plan.replicas(1).micro_batches())
      for (const uint32_t sample : micro_batch.samples())
        EXPECT_LE(batch.samples(static_cast<int>(sample)).target_tokens(), 40U);
  }
}

TEST(RankMemoryTest, WhatFitsNowhereIsRefusedWithTheRankThatLacksLeast) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  const int64_t parameters =
      PlanWithin(GptJob(1, 1, v1::POLICY_DYNAMIC), MakeBatch({{0, 100}})).programs(0).static_memory_bytes();
  job.mutable_planning()->set_memory_limit_bytes(parameters + 20'000);
  LimitRank(1, parameters + 30'000, &job);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const absl::Status refused = (*planner)->MakePlan(MakeBatch({{0, 2000}, {0, 100}})).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("batch.samples[0]: 2000 tokens do not fit on stage 0"),
                    HasSubstr(absl::StrCat("limit ", parameters + 30'000, " of rank 1")),
                    HasSubstr(" or more on every rank, those of job.planning.rank_memory_limits too")))
      << refused;
}

TEST(RankMemoryTest, StagesThatDoNotFitNameTheirRank) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  LimitRank(3, 10'000, &job);
  const absl::Status refused = Planner::Create(job).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("optimizer state of stage 1"), HasSubstr("limit 10000 of rank 3")));
}

TEST(RankMemoryTest, TheRankWithLessGetsFewerLayers) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(1'000'000);
  for (int i = 0; i < 16; ++i) job.mutable_planning()->add_typical_samples()->set_target_tokens(100 + 10 * i);
  // Three layers take 12 MB.
  LimitRank(0, 13'000'000, &job);
  const v1::Plan plan = PlanWithin(job, EightSamples());
  EXPECT_LE(plan.layers_per_stage(0), 3U);
}

TEST(RankMemoryTest, AJudgedReplicaHasTheLeastRoomOfAll) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(1'000'000);
  for (int i = 0; i < 300; ++i) job.mutable_planning()->add_typical_samples()->set_target_tokens(100 + i);
  LimitRank(2, 13'000'000, &job);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_LE((*planner)->job().topology.shape().stages.front().layers(), 3);
}

TEST(RankMemoryTest, MeshesSideBySideHaveTheLimitsOfTheirRanks) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  v1::Strategy* strategy = job.add_strategies();
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(2, 1, 1, 1);
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(1, 2, 1, 1);
  const v1::Plan roomy = PlanWithin(job, EightSamples());
  const int64_t parameters = roomy.programs(3).static_memory_bytes();
  LimitRank(1, kPlenty / 2, &job);
  LimitRank(3, parameters + 70 * 8 * 100 + 10'000, &job);
  const v1::Plan plan = PlanWithin(job, EightSamples());
  ASSERT_THAT(plan.options().rank_memory_limits(), SizeIs(2));
  EXPECT_EQ(plan.options().rank_memory_limits(1).rank(), 3U);
  LimitRank(4, kPlenty, &job);
  EXPECT_THAT(std::string(StrategyPlanner::Create(job).status().message()),
              HasSubstr("job.planning.rank_memory_limits: rank 4; the job has 4 ranks"));
}

TEST(RankMemoryTest, StageGroupsKeepToTheRankWithLeast) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(2);
  const v1::Plan roomy = PlanWithin(job, EightSamples());
  const int64_t parameters = roomy.programs(3).static_memory_bytes();
  LimitRank(3, parameters + (MostPeak(roomy) - parameters) / 4, &job);
  PlanWithin(job, EightSamples());
}

TEST(RankMemoryTest, ARankWithLessTakesASmallerShare) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e14);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(0);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(100'000);
  const v1::Plan roomy = PlanWithin(job, EightSamples());
  job.mutable_planning()->set_memory_limit_bytes(2 * MostPeak(roomy));
  LimitRank(1, MostPeak(roomy) * 9 / 10, &job);
  const std::vector<v1::Batch> batches = {EightSamples()};
  const absl::StatusOr<ShareWeightsChoice> choice = ChooseShareWeights(job, batches);
  ASSERT_TRUE(choice.ok()) << choice.status();
  ASSERT_THAT(choice->chosen.weights, SizeIs(2));
  EXPECT_GT(choice->chosen.weights[0], choice->chosen.weights[1]);
  SetShareWeights(*choice, &job);
  PlanWithin(job, EightSamples());
}

TEST(RankMemoryTest, OfAPlanIsCheckedWithItsStructureAndWithItsPrograms) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  LimitRank(0, kPlenty, &job);
  LimitRank(1, kPlenty / 2, &job);
  const v1::Batch batch = EightSamples();
  const v1::Plan plan = PlanWithin(job, batch);
  const auto said = [&](auto damage) {
    v1::Plan damaged = plan;
    damage(damaged.mutable_options()->mutable_rank_memory_limits(1));
    std::string text;
    for (const Violation& violation : CheckPlan(batch, damaged)) text += violation.message + "\n";
    return text;
  };
  EXPECT_THAT(said([](v1::RankMemoryLimit* limit) { limit->set_rank(2); }),
              HasSubstr("options.rank_memory_limits[1].rank is 2 of 2 ranks"));
  EXPECT_THAT(said([](v1::RankMemoryLimit* limit) { limit->set_rank(0); }),
              HasSubstr("options.rank_memory_limits[1].rank is 0, which does not ascend"));
  EXPECT_THAT(said([](v1::RankMemoryLimit* limit) { limit->set_bytes(0); }),
              HasSubstr("options.rank_memory_limits[1].bytes is 0"));
  // Limits that are another's are found with the profile.
  v1::Plan other = plan;
  other.mutable_programs(1)->set_memory_limit_bytes(kPlenty);
  const auto audited = AuditPlan(batch, other, job.profile());
  ASSERT_TRUE(audited.ok()) << audited.status();
  ASSERT_FALSE(audited->empty());
  EXPECT_THAT(audited->front().message, HasSubstr("rank 1: memory_limit_bytes is"));
}

}  // namespace
}  // namespace penstock::core
