// What plans say is to be expected of them where passes are noisy.
#include "planner/core/replay/expected_time.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

constexpr double kNoise = 0.2;

v1::Batch Samples() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 24; ++i) lengths.emplace_back(i % 7, 10 + (i * 29) % 60);
  return MakeBatch(lengths);
}

v1::Plan Plan(const v1::JobSpec& job, const v1::Batch& batch) {
  return *(*StrategyPlanner::Create(job))->MakePlan(batch);
}

v1::JobSpec NoisyJob() {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_profile()->set_pass_noise(kNoise);
  return job;
}

TEST(ExpectedTimeTest, WithoutNoiseItIsTheMakespan) {
  const v1::Plan plan = Plan(GptJob(2, 2, v1::POLICY_DYNAMIC), Samples());
  EXPECT_EQ(plan.predicted().expected_ns(), 0);
  EXPECT_EQ(ExpectedNs(plan.predicted()), plan.predicted().makespan_ns());
}

TEST(ExpectedTimeTest, IsNearTheMeanOfManyOtherDraws) {
  const v1::Plan plan = Plan(NoisyJob(), Samples());
  const double mean = RunUnderNoise(plan, kNoise, /*seed=*/99, /*draws=*/1024)->mean_ns;
  EXPECT_NEAR(static_cast<double>(ExpectedNs(plan.predicted())) / mean, 1, 0.01);
  EXPECT_GT(ExpectedNs(plan.predicted()), plan.predicted().makespan_ns());
}

TEST(ExpectedTimeTest, IsPartOfTheHashAndBreaksNoRule) {
  const v1::Batch batch = Samples();
  const v1::Plan plan = Plan(NoisyJob(), batch);
  EXPECT_TRUE(CheckPlan(batch, plan).empty());
  EXPECT_EQ(plan.content_hash(), Planner::ContentHash(plan));
}

TEST(ExpectedTimeTest, IsThatOfTrainingWhereABatchIsValidatedToo) {
  v1::Batch batch = Samples();
  const int64_t alone = Plan(NoisyJob(), batch).predicted().expected_ns();
  *batch.mutable_validation()->mutable_samples() = batch.samples();
  const v1::Plan plan = Plan(NoisyJob(), batch);
  EXPECT_EQ(plan.predicted().expected_ns(), alone);
  EXPECT_EQ(plan.validation().predicted().expected_ns(), 0);
  EXPECT_EQ(plan.content_hash(), Planner::ContentHash(plan));
}

TEST(ExpectedTimeTest, IsKnownOfMeshesSideBySide) {
  v1::JobSpec job = NoisyJob();
  job.mutable_planning()->set_parameter_shares(true);
  v1::Strategy* const strategy = job.add_strategies();
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(2, 1, 1, 1);
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(1, 2, 1, 1);
  *job.mutable_mesh() = strategy->meshes(0).mesh();
  const auto planner = StrategyPlanner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(Samples());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->predicted().expected_ns(), plan->predicted().makespan_ns());
}

}  // namespace
}  // namespace penstock::core
