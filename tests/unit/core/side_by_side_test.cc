// Strategies of several meshes side by side: who gets which samples, what no assignment can beat, and plans
// of random jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/process/sanitized.h"
#include "planner/core/audit/audit_plan.h"
#include "planner/core/contract/plan_of_mesh.h"
#include "planner/core/strategies/bound_of_meshes.h"
#include "planner/core/strategies/sample_assignment.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Samples that take so long on one replica, of the way as well.
MeshLoad Load(int replicas, const std::vector<double>& times) {
  MeshLoad load = {.samples = {}, .replicas = replicas};
  for (const double time : times)
    load.samples.push_back(
        {.fits = true, .busiest_ns = time, .path_ns = time, .least_alone_ns = time, .least_work_ns = time});
  return load;
}

double LongestEnd(const std::vector<MeshLoad>& loads, const std::vector<int>& mesh_of_sample) {
  double longest = 0;
  for (size_t mesh = 0; mesh < loads.size(); ++mesh)
    longest = std::max(longest, EndOfMesh(loads[mesh], mesh_of_sample, static_cast<int>(mesh)));
  return longest;
}

// Calls `visit` for every assignment in which each sample fits.
template <typename Visit>
void ForEachAssignment(const std::vector<MeshLoad>& loads, Visit visit) {
  std::vector<int> assignment(loads.front().samples.size(), 0);
  while (true) {
    bool allowed = true;
    for (size_t sample = 0; sample < assignment.size(); ++sample)
      allowed = allowed && loads[assignment[sample]].samples[sample].fits;
    if (allowed) visit(assignment);
    size_t at = 0;
    while (at < assignment.size() && ++assignment[at] == static_cast<int>(loads.size())) assignment[at++] = 0;
    if (at == assignment.size()) return;
  }
}

TEST(SampleAssignmentTest, TheLongSampleIsOnTheMeshThatIsFastForIt) {
  // The first mesh divides samples over four ranks; the second has four replicas of one.
  const std::vector<MeshLoad> loads = {Load(1, {25, 1, 1, 1, 1}), Load(4, {100, 4, 4, 4, 4})};
  EXPECT_THAT(AssignSamples(loads), ElementsAre(0, 1, 1, 1, 1));
}

TEST(SampleAssignmentTest, ASampleIsNeverWhereItDoesNotFit) {
  std::vector<MeshLoad> loads = {Load(1, {10, 10, 10}), Load(1, {1, 1, 1})};
  loads[1].samples[2].fits = false;
  const std::vector<int> assignment = AssignSamples(loads);
  ASSERT_EQ(assignment.size(), 3);
  EXPECT_EQ(assignment[2], 0);
  loads[0].samples[2].fits = false;
  EXPECT_THAT(AssignSamples(loads), IsEmpty());
}

TEST(SampleAssignmentTest, AMeshOnWhichEverySampleTakesLongerThanAllElsewhereHasNone) {
  EXPECT_THAT(AssignSamples({Load(1, {5}), Load(1, {6})}), ElementsAre(0));
  EXPECT_THAT(AssignSamples({Load(1, {50, 60, 40}), Load(1, {5, 6, 4})}), ElementsAre(1, 1, 1));
}

TEST(SampleAssignmentTest, IsCloseToTheBestOfAllAndTheBoundIsBelowIt) {
  double worst = 1, sum = 0;
  int cases = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const uint32_t meshes = random.Range(2, 3), samples = random.Range(3, 8);
    std::vector<double> sizes;
    for (uint32_t i = 0; i < samples; ++i) sizes.push_back(random.Range(1, random.Chance(30) ? 400 : 40));
    std::vector<MeshLoad> loads;
    for (uint32_t mesh = 0; mesh < meshes; ++mesh) {
      std::vector<double> times;
      for (const double size : sizes) times.push_back(size * random.Range(50, 300) / 100);
      loads.push_back(Load(static_cast<int>(random.Range(1, 3)), times));
      for (SampleEstimate& sample : loads.back().samples) sample.fits = !random.Chance(5);
    }
    double best = std::numeric_limits<double>::infinity();
    ForEachAssignment(loads, [&](const std::vector<int>& assignment) {
      best = std::min(best, LongestEnd(loads, assignment));
    });
    const std::vector<int> found = AssignSamples(loads);
    if (best == std::numeric_limits<double>::infinity()) continue;
    ASSERT_EQ(found.size(), samples) << "seed " << seed;
    const double ratio = LongestEnd(loads, found) / best;
    worst = std::max(worst, ratio);
    sum += ratio;
    ++cases;
    EXPECT_LE(BoundOfMeshes(loads, 0), best * (1 + 1e-9)) << "seed " << seed;
  }
  std::cout << cases << " cases: above the best assignment " << 100 * (sum / cases - 1) << " % in the mean, "
            << 100 * (worst - 1) << " % at worst\n";
  EXPECT_GT(cases, 200);
  EXPECT_LT(sum / cases, 1.02);
  EXPECT_LT(worst, 1.35);
}

// A random job, on a few random meshes side by side in place of its own.
v1::JobSpec SideBySideJob(uint64_t seed, v1::Batch* batch) {
  RandomJobLimits limits;
  limits.samples = 20;
  limits.tensor = 2;
  limits.slow_percent = 25;
  limits.slow_link_percent = 15;
  limits.windows_percent = 25;
  limits.backward_forms_percent = 25;
  RandomPlanningCase given = MakeRandomCase(seed, limits);
  *batch = given.batch;
  v1::JobSpec job = given.job;
  Random random(seed);
  v1::PlanningOptions* planning = job.mutable_planning();
  planning->clear_layers_per_stage();
  planning->clear_rank_of_stage();
  planning->set_stage_split(v1::STAGE_SPLIT_EVEN);
  planning->set_shard_optimizer_state(false);
  planning->set_parameter_shares(true);
  if (planning->schedule() == v1::SCHEDULE_INTERLEAVED) planning->set_schedule(v1::SCHEDULE_AUTO);
  const bool gpt = job.model().architecture() == v1::ARCHITECTURE_GPT;
  const bool divides = TensorRanks(job.mesh()) > 1;
  const bool tables = job.profile().has_grid();
  v1::Strategy* strategy = job.add_strategies();
  const uint32_t layers =
      gpt ? job.model().layers() : job.model().encoder_layers() + job.model().decoder_layers();
  for (uint32_t mesh = 0; mesh < random.Range(2, 3); ++mesh) {
    const uint32_t context = gpt && !tables && random.Chance(50) ? 2 : 1;
    *strategy->add_meshes()->mutable_mesh() = MakeMesh(
        random.Range(1, std::min(layers, 3u)), random.Range(1, 2), divides ? random.Range(1, 2) : 1, context);
  }
  job.mutable_profile()->clear_slow_ranks();
  if (random.Chance(30)) {
    v1::SlowRank* slow = job.mutable_profile()->add_slow_ranks();
    slow->set_rank(static_cast<uint32_t>(RanksOf(*strategy)) - 1);
    slow->set_factor(1.5);
  }
  *job.mutable_mesh() = strategy->meshes(0).mesh();
  Random weights(seed + (uint64_t{7} << 40));
  if (weights.Chance(40)) RandomShareWeights(RanksOf(*strategy), &weights, planning);
  // RESHARDs of several rounds, of which passes hide something.
  if (random.Chance(50)) {
    for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers())
      layer.set_parameter_bytes(layer.parameter_bytes() + random.Range(1, 40) * 1e6);
    v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
    cluster->set_memory_bytes(int64_t{1} << 50);
    cluster->set_exchange_overlap(random.Range(1, 10) / 10.0);
    planning->clear_memory_limit_bytes();
  }
  return job;
}

TEST(SideBySideTest, EveryPlanOfARandomJobIsSoundAndNotBelowItsBound) {
  int planned = 0, refused = 0;
  const int jobs = kSanitized ? 30 : 300;
  for (int seed = 0; seed < jobs; ++seed) {
    v1::Batch batch;
    const v1::JobSpec job = SideBySideJob(static_cast<uint64_t>(seed), &batch);
    const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
    if (!planner.ok()) {
      EXPECT_THAT(std::string(planner.status().message()), HasSubstr("job.")) << seed;
      ++refused;
      continue;
    }
    const auto plan = (*planner)->MakePlan(batch);
    if (!plan.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(plan.status()) || absl::IsResourceExhausted(plan.status()))
          << seed << ": " << plan.status();
      ++refused;
      continue;
    }
    ++planned;
    EXPECT_THAT(CheckPlan(batch, *plan), IsEmpty()) << "seed " << seed;
    const auto audited = AuditPlan(batch, *plan, job.profile());
    ASSERT_TRUE(audited.ok()) << "seed " << seed << ": " << audited.status();
    EXPECT_THAT(*audited, IsEmpty()) << "seed " << seed;
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << "seed " << seed;
    EXPECT_EQ(plan->programs_size(), static_cast<int>(RanksOf(job)));
    EXPECT_EQ(plan->content_hash(), (*(*planner)->MakePlan(batch)).content_hash()) << "seed " << seed;
  }
  std::cout << planned << " of " << jobs << " jobs planned, " << refused << " refused\n";
  EXPECT_GT(planned, jobs / 2);
}

TEST(SideBySideTest, ThePartOfAMeshIsAPlanOfThatMesh) {
  v1::Batch batch;
  v1::JobSpec job = SideBySideJob(3, &batch);
  job.mutable_planning()->clear_share_weights();
  const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int ranks = 0;
  for (int mesh = 0; mesh < MeshCount(*plan); ++mesh) {
    const MeshRange range = RangeOfMesh(*plan, mesh);
    EXPECT_EQ(range.first_rank, ranks);
    const v1::Plan part = PlanOfMesh(*plan, mesh);
    EXPECT_EQ(part.programs_size(), range.ranks);
    EXPECT_EQ(part.replicas_size(), range.replicas);
    EXPECT_TRUE(part.meshes().empty());
    for (int rank = 0; rank < range.ranks; ++rank) {
      EXPECT_EQ(part.programs(rank).rank(), static_cast<uint32_t>(rank));
      EXPECT_EQ(MeshOfRank(*plan, range.first_rank + rank), mesh);
      EXPECT_EQ(part.programs(rank).instructions_size(),
                plan->programs(range.first_rank + rank).instructions_size());
    }
    ranks += range.ranks;
  }
  EXPECT_EQ(ranks, plan->programs_size());
}

// Whether the mesh has a pass of some sample.
bool IsBusy(const v1::Plan& plan, int mesh) {
  const v1::Plan part = PlanOfMesh(plan, mesh);
  return std::ranges::any_of(part.replicas(),
                             [](const v1::Replica& replica) { return !replica.micro_batches().empty(); });
}

TEST(SideBySideTest, AMeshWithoutSamplesBringsParametersAndGradientsAlone) {
  int idle = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    v1::Batch batch;
    const v1::JobSpec job = SideBySideJob(seed, &batch);
    const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
    if (!planner.ok()) continue;
    batch.mutable_samples()->DeleteSubrange(1, batch.samples_size() - 1);
    const auto plan = (*planner)->MakePlan(batch);
    if (!plan.ok()) continue;
    EXPECT_THAT(CheckPlan(batch, *plan), IsEmpty()) << "seed " << seed;
    const auto audited = AuditPlan(batch, *plan, job.profile());
    ASSERT_TRUE(audited.ok()) << "seed " << seed << ": " << audited.status();
    EXPECT_THAT(*audited, IsEmpty()) << "seed " << seed;
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << "seed " << seed;
    for (int mesh = 0; mesh < MeshCount(*plan); ++mesh) {
      if (IsBusy(*plan, mesh)) continue;
      ++idle;
      const v1::Plan part = PlanOfMesh(*plan, mesh);
      for (const v1::Program& program : part.programs()) {
        ASSERT_EQ(program.instructions_size(), 3) << "seed " << seed;
        EXPECT_EQ(program.instructions(0).op(), v1::OP_RESHARD);
        EXPECT_EQ(program.instructions(1).op(), v1::OP_RESHARD);
        EXPECT_EQ(program.instructions(2).op(), v1::OP_OPTIMIZER_STEP);
      }
    }
  }
  EXPECT_GT(idle, 20);
}

TEST(SideBySideTest, ASampleThatNoMeshHoldsIsNamed) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->clear_layers_per_stage();
  v1::Strategy* strategy = job.add_strategies();
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(1, 1, 1, 1);
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(2, 1, 1, 1);
  *job.mutable_mesh() = strategy->meshes(0).mesh();
  const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  ASSERT_TRUE(planner.ok()) << planner.status();
  v1::Batch batch = MakeBatch({{0, 10}, {0, 10}});
  EXPECT_TRUE((*planner)->ValidateBatch(batch).ok());
  batch.mutable_samples(1)->set_target_tokens(job.model().max_sequence_length() + 1);
  EXPECT_THAT(std::string((*planner)->ValidateBatch(batch).message()), HasSubstr("batch.samples[1]"));
}

}  // namespace
}  // namespace penstock::core
