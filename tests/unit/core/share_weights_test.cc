// Jobs whose ranks have shares of different size: memory, times, and what is refused.
#include "planner/core/model/share_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/audit/audit_plan.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Weights = std::vector<uint32_t>;

v1::JobSpec JobOfShares(uint32_t pipeline, uint32_t data, const Weights& weights) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_PACKED);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->mutable_share_weights()->Add(weights.begin(), weights.end());
  return job;
}

v1::Batch SomeSamples() { return MakeBatch({{0, 300}, {0, 200}, {0, 250}, {0, 100}, {0, 80}, {0, 60}}); }

v1::Plan CheckedPlanOf(const v1::JobSpec& job, const v1::Batch& batch) {
  const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  EXPECT_TRUE(planner.ok()) << planner.status();
  if (!planner.ok()) return {};
  const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  EXPECT_THAT(CheckPlan(batch, *plan), IsEmpty());
  EXPECT_THAT(*AuditPlan(batch, *plan, job.profile()), IsEmpty());
  EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns());
  return *plan;
}

std::vector<int64_t> StepsOf(const v1::Plan& plan) {
  std::vector<int64_t> steps;
  for (const v1::Program& program : plan.programs())
    steps.push_back(program.instructions().rbegin()->expected_duration_ns());
  return steps;
}

std::vector<int64_t> StaticBytesOf(const v1::Plan& plan) {
  std::vector<int64_t> bytes;
  for (const v1::Program& program : plan.programs()) bytes.push_back(program.static_memory_bytes());
  return bytes;
}

TEST(ShareWeightsTest, AreThoseOfAMeshsRanksWithoutACommonDivisorOfAll) {
  const ShareWeights weights = ShareWeightsOf({6, 2, 0, 4}, 1, 2);
  EXPECT_THAT(weights.of_ranks, ElementsAre(1, 0));
  EXPECT_EQ(weights.all, 6);
  EXPECT_EQ(weights.SumOf(2), 1);
  EXPECT_TRUE(ShareWeightsOf({5, 5, 5}, 0, 3).alike());
  EXPECT_TRUE(ShareWeightsOf({}, 0, 3).alike());
  EXPECT_EQ(ShareWeightsOf({5, 5, 5}, 0, 3).AllOf(3), 3);
}

// But for what is said of the options.
TEST(ShareWeightsTest, ThatAreAllAlikeChangeNothingOfAPlan) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomPlanningCase given = MakeRandomCase(
        seed, {.context = 2, .tensor = 2, .slow_percent = 30, .shares_percent = 100, .windows_percent = 20});
    const auto plan_of = [&](const v1::JobSpec& job) {
      const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
      absl::StatusOr<v1::Plan> plan =
          planner.ok() ? (*planner)->MakePlan(given.batch) : absl::StatusOr<v1::Plan>(planner.status());
      if (!plan.ok()) return std::string(plan.status().message());
      plan->mutable_options()->clear_share_weights();
      plan->clear_content_hash();
      return plan->SerializeAsString();
    };
    const std::string without = plan_of(given.job);
    for (uint64_t rank = 0; rank < RanksOf(given.job); ++rank)
      given.job.mutable_planning()->add_share_weights(7);
    EXPECT_EQ(plan_of(given.job), without) << "seed " << seed;
  }
}

// 8 layers of 1000 bytes, embedding and head of 2000 each; state is 4 bytes a byte, of which 2 are shared.
TEST(ShareWeightsTest, GiveEachRankItsPartOfTheStateAndOfTheUpdate) {
  const v1::Plan plan = CheckedPlanOf(JobOfShares(1, 4, {3, 1, 0, 2}), SomeSamples());
  EXPECT_THAT(StaticBytesOf(plan), ElementsAre(24'000 + 24'000, 24'000 + 8000, 24'000, 24'000 + 16'000));
  EXPECT_THAT(StepsOf(plan), ElementsAre(3000, 1000, 0, 2000));
}

TEST(ShareWeightsTest, OfSlowRanksUpdateAsSlowlyAsTheirPassesRun) {
  v1::JobSpec job = JobOfShares(1, 4, {3, 1, 0, 2});
  v1::SlowRank* slow = job.mutable_profile()->add_slow_ranks();
  slow->set_rank(3);
  slow->set_factor(1.5);
  EXPECT_THAT(StepsOf(CheckedPlanOf(job, SomeSamples())), ElementsAre(3000, 1000, 0, 3000));
  job.mutable_planning()->clear_share_weights();
  EXPECT_THAT(StepsOf(CheckedPlanOf(job, SomeSamples())), ElementsAre(1500, 1500, 1500, 1500));
}

// By what each rank sends and receives, element by element.
TEST(ShareWeightsTest, OfTheRankThatSendsOrReceivesMostSayWhatAReshardMoves) {
  Random random(5);
  for (int test = 0; test < 60; ++test) {
    const uint32_t pipeline = random.Range(1, 4), data = random.Range(1, 3);
    Weights weights;
    for (uint32_t rank = 0; rank < pipeline * data; ++rank) weights.push_back(random.Range(0, 5));
    weights[random.Range(0, pipeline * data - 1)] = 4;
    const CostModel costs = ModelOf(JobOfShares(pipeline, data, weights));
    double all_weights = 0;
    for (const uint32_t weight : weights) all_weights += weight;
    double most = 0;
    for (size_t owner = 0; owner < weights.size(); ++owner) {
      double sent = 0, received = 0;
      for (size_t other = 0; other < weights.size(); ++other) {
        if (other == owner) continue;
        const auto needs = [&](size_t rank) {
          const int position = costs.topology().PlaceOf(static_cast<int>(rank)).position;
          return static_cast<double>(costs.PositionParameterBytes(position));
        };
        sent += needs(other) * weights[owner] / all_weights;
        received += needs(owner) * weights[other] / all_weights;
      }
      most = std::max({most, sent, received});
    }
    EXPECT_GE(static_cast<double>(costs.ReshardBytes()), most - 1e-6);
    EXPECT_LT(static_cast<double>(costs.ReshardBytes()), most + 1);
  }
}

TEST(ShareWeightsTest, LetAJobFitWhoseFullestRankHasNoRoomForAnEqualShare) {
  // Of two stages the second has the head; both have a share of 4 * 16,000 / 2 bytes.
  v1::JobSpec job = JobOfShares(2, 1, {});
  job.mutable_profile()->mutable_layers(1)->set_parameter_bytes(6000);
  const CostModel equal = ModelOf(job);
  const int64_t fullest = equal.RankStaticBytes(1);
  ASSERT_GT(fullest, equal.RankStaticBytes(0));
  job.mutable_planning()->set_memory_limit_bytes(fullest);
  EXPECT_THAT(std::string(StrategyPlanner::Create(job, Planner::Explain::kCauseAlone).status().message()),
              HasSubstr("need"));
  for (const uint32_t weight : {4, 3}) job.mutable_planning()->add_share_weights(weight);
  const v1::Plan plan = CheckedPlanOf(job, MakeBatch({{0, 20}, {0, 10}}));
  ASSERT_EQ(plan.programs_size(), 2);
  EXPECT_LT(plan.programs(1).static_memory_bytes(), fullest);
}

TEST(ShareWeightsTest, AreThoseOfAllRanksWhereMeshesAreSideBySide) {
  v1::JobSpec job = JobOfShares(2, 1, {1, 2, 0, 5});
  job.mutable_planning()->clear_layers_per_stage();
  v1::Strategy* strategy = job.add_strategies();
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(2, 1, 1, 1);
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(1, 2, 1, 1);
  const v1::Plan plan = CheckedPlanOf(job, SomeSamples());
  ASSERT_EQ(plan.meshes_size(), 2);
  EXPECT_EQ(plan.options().share_weights_size(), 4);
  // Of 12,000 bytes 2 ns each.
  EXPECT_THAT(StepsOf(plan), ElementsAre(750, 1500, 0, 3750));
}

TEST(ShareWeightsTest, ThatNoJobMayHaveAreRefusedByName) {
  const auto error = [](const v1::JobSpec& job) {
    return std::string(StrategyPlanner::CheckJob(job).message());
  };
  EXPECT_EQ(error(JobOfShares(2, 2, {3, 1, 0, 2})), "");
  EXPECT_EQ(error(JobOfShares(2, 2, {3, 1, 0})),
            "job.planning.share_weights: 3 of them; the job has 4 ranks, and each needs its own");
  EXPECT_EQ(error(JobOfShares(2, 2, {0, 0, 0, 0})),
            "job.planning.share_weights: all are 0; at least one rank must have a share");
  EXPECT_EQ(error(JobOfShares(1, 2, {1, (1 << 20) + 1})),
            "job.planning.share_weights[1]: 1048577; use at most 1048576");
  v1::JobSpec without = JobOfShares(1, 2, {1, 2});
  without.mutable_planning()->clear_parameter_shares();
  EXPECT_THAT(error(without), HasSubstr("job.planning.share_weights: there are no shares without "
                                        "job.planning.parameter_shares"));
  v1::JobSpec side_by_side = JobOfShares(2, 1, {1, 2});
  side_by_side.mutable_planning()->clear_layers_per_stage();
  v1::Strategy* strategy = side_by_side.add_strategies();
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(2, 1, 1, 1);
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(1, 2, 1, 1);
  EXPECT_THAT(error(side_by_side), HasSubstr("job.planning.share_weights: 2 of them; the job has 4 ranks"));
}

TEST(ShareWeightsTest, OfAPlanAreCheckedWithItsStructure) {
  const v1::Batch batch = SomeSamples();
  const v1::Plan plan = CheckedPlanOf(JobOfShares(1, 4, {3, 1, 0, 2}), batch);
  const auto said = [&](const Weights& weights) {
    v1::Plan damaged = plan;
    damaged.mutable_options()->mutable_share_weights()->Assign(weights.begin(), weights.end());
    std::string text;
    for (const Violation& violation : CheckPlan(batch, damaged)) text += violation.message + "\n";
    return text;
  };
  EXPECT_THAT(said({3, 1, 0}), HasSubstr("options.share_weights has 3 for 4 ranks"));
  EXPECT_THAT(said({0, 0, 0, 0}), HasSubstr("the largest of options.share_weights is 0"));
  EXPECT_THAT(said({(1 << 20) + 1, 0, 0, 0}), HasSubstr("the largest of options.share_weights is 1048577"));
  // Sizes that are another's are found with the profile.
  v1::Plan other = plan;
  other.mutable_options()->set_share_weights(2, 1);
  EXPECT_FALSE(AuditPlan(batch, other, JobOfShares(1, 4, {}).profile())->empty());
}

}  // namespace
}  // namespace penstock::core
