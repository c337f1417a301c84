// Which of a job's strategies a batch is planned on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/strategies/strategy_specs.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Strategy StrategyOf(const v1::Mesh& mesh) {
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

// Of four ranks.
v1::JobSpec JobWith(const std::vector<v1::Mesh>& meshes) {
  v1::JobSpec job = GptJob(meshes.front().pipeline(), meshes.front().data(), v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->clear_layers_per_stage();
  *job.mutable_mesh() = meshes.front();
  for (const v1::Mesh& mesh : meshes) *job.add_strategies() = StrategyOf(mesh);
  return job;
}

v1::JobSpec FourMeshes() {
  return JobWith({MakeMesh(4, 1, 1, 1), MakeMesh(1, 4, 1, 1), MakeMesh(2, 1, 1, 2), MakeMesh(1, 1, 1, 4)});
}

// Many short samples, and one that is as long as all of them together.
v1::Batch ShortSamples() {
  return MakeBatch({{0, 60}, {0, 50}, {0, 70}, {0, 60}, {0, 55}, {0, 65}, {0, 60}, {0, 58}});
}
v1::Batch OneLongSample() { return MakeBatch({{0, 900}, {0, 20}, {0, 30}}); }

std::unique_ptr<StrategyPlanner> PlannerOf(const v1::JobSpec& job,
                                           const std::vector<v1::Topology>& stages = {},
                                           const std::vector<uint32_t>& numbers = {}) {
  auto planner =
      StrategyPlanner::Create(job, Planner::Explain::kCauseAlone, RunSerially, StopToken(), stages, numbers);
  EXPECT_TRUE(planner.ok()) << planner.status();
  return planner.ok() ? *std::move(planner) : nullptr;
}

std::string ErrorOf(const v1::JobSpec& job) { return std::string(StrategyPlanner::CheckJob(job).message()); }

TEST(StrategyPlannerTest, PlansOnTheStrategyThatIsFastestForTheBatch) {
  const v1::JobSpec job = FourMeshes();
  const auto planner = PlannerOf(job);
  ASSERT_NE(planner, nullptr);
  for (const v1::Batch& batch : {ShortSamples(), OneLongSample()}) {
    const absl::StatusOr<v1::Plan> plan = planner->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    int64_t fastest = std::numeric_limits<int64_t>::max();
    uint32_t strategy = 0;
    for (int i = 0; i < planner->strategies(); ++i) {
      const absl::StatusOr<v1::Plan> alone = planner->planner(i).MakePlan(batch, RunSerially, StopToken());
      if (!alone.ok() || alone->predicted().makespan_ns() >= fastest) continue;
      fastest = alone->predicted().makespan_ns();
      strategy = static_cast<uint32_t>(i);
    }
    EXPECT_EQ(plan->predicted().makespan_ns(), fastest);
    EXPECT_EQ(plan->strategy(), strategy);
    EXPECT_EQ(plan->mesh().SerializeAsString(),
              job.strategies(strategy).meshes(0).mesh().SerializeAsString());
    EXPECT_TRUE(CheckPlan(batch, *plan).empty());
  }
}

TEST(StrategyPlannerTest, OtherLengthsMayHaveAnotherStrategy) {
  const auto planner = PlannerOf(FourMeshes());
  ASSERT_NE(planner, nullptr);
  const absl::StatusOr<v1::Plan> of_short = planner->MakePlan(ShortSamples());
  const absl::StatusOr<v1::Plan> of_long = planner->MakePlan(OneLongSample());
  ASSERT_TRUE(of_short.ok() && of_long.ok());
  EXPECT_NE(of_short->strategy(), of_long->strategy());
}

TEST(StrategyPlannerTest, APlannerWithTheStagesOfAnotherMakesTheSamePlans) {
  v1::JobSpec job = FourMeshes();
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  const auto first = PlannerOf(job);
  ASSERT_NE(first, nullptr);
  const auto second = PlannerOf(job, first->topologies());
  ASSERT_NE(second, nullptr);
  const absl::StatusOr<v1::Plan> one = first->MakePlan(OneLongSample());
  const absl::StatusOr<v1::Plan> other = second->MakePlan(OneLongSample());
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->SerializeAsString(), other->SerializeAsString());
}

TEST(StrategyPlannerTest, AStrategyWithoutMemoryForTheBatchIsPassedOver) {
  v1::JobSpec job = JobWith({MakeMesh(1, 4, 1, 1), MakeMesh(4, 1, 1, 1)});
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_NONE);
  const v1::Batch batch = OneLongSample();
  const auto roomy = PlannerOf(job);
  ASSERT_NE(roomy, nullptr);
  // Of the 720 kB that all its layers keep of the long sample, a stage keeps a fourth part.
  job.mutable_planning()->set_memory_limit_bytes(roomy->planner(0).planner(0).costs().RankStaticBytes(0) +
                                                 500'000);
  const auto planner = PlannerOf(job);
  ASSERT_NE(planner, nullptr);
  EXPECT_FALSE(planner->planner(0).ValidateBatch(batch, Planner::Explain::kCauseAlone, StopToken()).ok());
  EXPECT_TRUE(planner->ValidateBatch(batch, Planner::Explain::kCauseAlone).ok());
  const absl::StatusOr<v1::Plan> plan = planner->MakePlan(batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->strategy(), 1);
}

TEST(StrategyPlannerTest, WhereNoStrategyHoldsTheBatchTheFirstOnesErrorSaysWhy) {
  v1::JobSpec job = FourMeshes();
  const auto planner = PlannerOf(job);
  ASSERT_NE(planner, nullptr);
  const v1::Batch batch = MakeBatch({{0, 1'000'000}});
  EXPECT_THAT(std::string(planner->ValidateBatch(batch).message()), HasSubstr("batch.samples[0]"));
  EXPECT_FALSE(planner->MakePlan(batch).ok());
}

// One strategy of these meshes side by side.
v1::JobSpec SideBySide(const std::vector<v1::Mesh>& meshes) {
  v1::JobSpec job = JobWith({meshes.front()});
  job.mutable_strategies(0)->clear_meshes();
  for (const v1::Mesh& mesh : meshes) *job.mutable_strategies(0)->add_meshes()->mutable_mesh() = mesh;
  return job;
}

TEST(StrategyPlannerTest, MeshesSideBySideShareABatch) {
  const v1::JobSpec job = SideBySide({MakeMesh(2, 1, 1, 2), MakeMesh(1, 3, 1, 1), MakeMesh(3, 1, 1, 1)});
  const auto planner = PlannerOf(job);
  ASSERT_NE(planner, nullptr);
  v1::Batch batch = ShortSamples();
  *batch.add_samples() = OneLongSample().samples(0);
  const auto plan = planner->MakePlan(batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->programs_size(), 10);
  EXPECT_EQ(plan->replicas_size(), 5);
  EXPECT_EQ(plan->meshes_size(), 3);
  EXPECT_THAT(CheckPlan(batch, *plan), IsEmpty());
  for (const v1::Replica& replica : plan->replicas()) EXPECT_FALSE(replica.micro_batches().empty());
}

// With the numbers that they have in the job, and as if it had no others.
TEST(StrategyPlannerTest, OnSomeOfAJobsStrategiesPlansAreThoseOfAJobThatHasThemAlone) {
  const v1::JobSpec job = FourMeshes();
  const auto all = PlannerOf(job);
  ASSERT_NE(all, nullptr);
  for (const std::vector<uint32_t>& numbers :
       std::vector<std::vector<uint32_t>>{{1, 3}, {3, 1, 3}, {2}, {0}, {0, 1, 2, 3}}) {
    const auto some = PlannerOf(job, all->topologies(), numbers);
    std::vector<v1::Mesh> meshes;
    for (const uint32_t number : some->numbers())
      meshes.push_back(job.strategies(static_cast<int>(number)).meshes(0).mesh());
    const auto alone = PlannerOf(JobWith(meshes));
    ASSERT_TRUE(some != nullptr && alone != nullptr);
    for (const v1::Batch& batch : {ShortSamples(), OneLongSample()}) {
      absl::StatusOr<v1::Plan> plan = some->MakePlan(batch);
      const absl::StatusOr<v1::Plan> expected = alone->MakePlan(batch);
      ASSERT_TRUE(plan.ok() && expected.ok()) << plan.status() << expected.status();
      EXPECT_EQ(plan->strategy(), some->numbers()[expected->strategy()]);
      EXPECT_THAT(CheckPlan(batch, *plan), IsEmpty());
      EXPECT_TRUE(some->Of(*plan).ok());
      plan->set_strategy(expected->strategy());
      plan->set_content_hash(Planner::ContentHash(*plan));
      EXPECT_EQ(plan->SerializeAsString(), expected->SerializeAsString());
    }
  }
}

TEST(StrategyPlannerTest, AStrategyThatItDoesNotPlanOnIsRefusedByItsNumber) {
  const v1::JobSpec job = FourMeshes();
  const auto some = PlannerOf(job, {}, {1, 3});
  ASSERT_NE(some, nullptr);
  v1::Plan plan;
  plan.set_strategy(2);
  EXPECT_THAT(std::string(some->Of(plan).status().message()), HasSubstr("plan.strategy is 2"));
  const auto none = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone, RunSerially, StopToken(), {},
                                            std::vector<uint32_t>{4});
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("job.strategies has 4, and no number 4"));
}

TEST(StrategyPlannerTest, StagesOfStrategiesBehindTheKnownOnesAreChosen) {
  v1::JobSpec job = FourMeshes();
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  const auto all = PlannerOf(job);
  ASSERT_NE(all, nullptr);
  std::vector<v1::Topology> known = all->topologies();
  known.resize(2);
  const auto added = PlannerOf(job, known, {2, 3});
  ASSERT_NE(added, nullptr);
  const std::vector<v1::Topology> chosen = added->topologies();
  ASSERT_EQ(chosen.size(), 2);
  EXPECT_EQ(chosen[0].SerializeAsString(), all->topologies()[2].SerializeAsString());
  EXPECT_EQ(chosen[1].SerializeAsString(), all->topologies()[3].SerializeAsString());
}

TEST(StrategyPlannerTest, AJobWithoutStrategiesHasItsMesh) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const auto planner = PlannerOf(job);
  ASSERT_NE(planner, nullptr);
  EXPECT_EQ(planner->strategies(), 1);
  const absl::StatusOr<v1::Plan> plan = planner->MakePlan(ShortSamples());
  const absl::StatusOr<v1::Plan> alone =
      planner->planner(0).MakePlan(ShortSamples(), RunSerially, StopToken());
  ASSERT_TRUE(plan.ok() && alone.ok());
  EXPECT_EQ(plan->SerializeAsString(), alone->SerializeAsString());
}

TEST(StrategySpecsTest, ErrorsNameTheField) {
  v1::JobSpec job = FourMeshes();
  job.mutable_planning()->set_parameter_shares(false);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.planning.parameter_shares: "));

  job = FourMeshes();
  *job.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.mesh: is another one"));

  job = FourMeshes();
  *job.mutable_strategies(1)->mutable_meshes(0)->mutable_mesh() = MakeMesh(1, 3, 1, 1);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.strategies[1].meshes[0].mesh: 3 ranks"));

  job = FourMeshes();
  *job.mutable_strategies(2)->add_meshes()->mutable_mesh() = MakeMesh(1, 3, 1, 1);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.strategies[2].meshes: 7 ranks"));

  job = FourMeshes();
  job.mutable_strategies(3)->clear_meshes();
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.strategies[3].meshes: is empty"));

  job = FourMeshes();
  job.mutable_planning()->add_layers_per_stage(1);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.planning.layers_per_stage: "));

  job = FourMeshes();
  job.mutable_planning()->set_shard_optimizer_state(true);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.planning.shard_optimizer_state: "));

  job = FourMeshes();
  for (int i = 0; i < 64; ++i) *job.add_strategies() = job.strategies(0);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.strategies: 68; use at most 64"));

  job = FourMeshes();
  job.mutable_strategies(1)->mutable_meshes(0)->mutable_layers_per_stage()->Add(1);
  EXPECT_THAT(ErrorOf(job), HasSubstr("job.strategies[1]: "));
}

TEST(StrategySpecsTest, AStrategyHasStagesOfItsOwn) {
  v1::JobSpec job = FourMeshes();
  v1::StrategyMesh& mesh = *job.mutable_strategies(2)->mutable_meshes(0);
  mesh.add_layers_per_stage(1);
  mesh.add_layers_per_stage(job.model().layers() - 1);
  const auto uneven = PlannerOf(job);
  ASSERT_NE(uneven, nullptr);
  EXPECT_EQ(uneven->topologies()[2].replicas(0).stages(0).decoder_layers(), 1);
}

}  // namespace
}  // namespace penstock::core
