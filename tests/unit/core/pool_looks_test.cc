// How a pool's planner sees which strategy is the fastest without planning on all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/plan_look.h"
#include "planner/core/search/judge_starts.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

// All of eight ranks.
v1::JobSpec PoolOf(const std::vector<v1::Mesh>& meshes) {
  v1::JobSpec job = GptJob(meshes.front().pipeline(), meshes.front().data(), v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->clear_layers_per_stage();
  *job.mutable_mesh() = meshes.front();
  for (const v1::Mesh& mesh : meshes) *job.add_strategies()->add_meshes()->mutable_mesh() = mesh;
  return job;
}

std::vector<v1::Mesh> FewMeshes() {
  return {MakeMesh(4, 2, 1, 1), MakeMesh(1, 8, 1, 1), MakeMesh(2, 1, 1, 4), MakeMesh(1, 1, 1, 8)};
}

std::vector<v1::Mesh> ManyMeshes() {
  std::vector<v1::Mesh> meshes = FewMeshes();
  for (const v1::Mesh& mesh :
       {MakeMesh(1, 2, 1, 4), MakeMesh(1, 4, 1, 2), MakeMesh(2, 2, 1, 2), MakeMesh(4, 1, 1, 2)})
    meshes.push_back(mesh);
  return meshes;
}

// Most samples are short, and some as long as several of them.
v1::Batch LongTailedBatch(Random& random) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t samples = random.Range(8, 24); samples > 0; --samples)
    lengths.emplace_back(0, random.Range(10, 80) * (random.Chance(15) ? random.Range(2, 10) : 1));
  return MakeBatch(lengths);
}

struct BesideAll {
  double worst = 1;
  double sum = 0;
  int cases = 0;
  int missed = 0;
};

// The pool's plans beside the best of plans on all of its strategies.
BesideAll CompareWithAll(const std::vector<v1::Mesh>& meshes, int batches) {
  const auto planner = StrategyPlanner::Create(PoolOf(meshes), Planner::Explain::kCauseAlone);
  EXPECT_TRUE(planner.ok()) << planner.status();
  BesideAll found;
  for (int seed = 0; planner.ok() && seed < batches; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const v1::Batch batch = LongTailedBatch(random);
    const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) continue;
    EXPECT_TRUE(CheckPlan(batch, *plan).empty());
    uint64_t best = std::numeric_limits<uint64_t>::max();
    for (int i = 0; i < (*planner)->strategies(); ++i) {
      const auto alone = (*planner)->planner(i).MakePlan(batch, RunSerially, StopToken());
      if (alone.ok()) best = std::min<uint64_t>(best, alone->predicted().makespan_ns());
    }
    const double ratio = static_cast<double>(plan->predicted().makespan_ns()) / static_cast<double>(best);
    found.worst = std::max(found.worst, ratio);
    found.sum += ratio;
    found.missed += ratio > 1 ? 1 : 0;
    ++found.cases;
  }
  std::cout << meshes.size() << " strategies: " << found.missed << " of " << found.cases
            << " plans are not the best of all, " << 100 * (found.sum / found.cases - 1)
            << " % above it in the mean, " << 100 * (found.worst - 1) << " % at worst\n";
  return found;
}

TEST(PoolLooksTest, OfFewStrategiesHardlyEverIsOneRuledOutThatIsTheFastest) {
  const BesideAll found = CompareWithAll(FewMeshes(), 25);
  EXPECT_LE(found.missed, 1);
  EXPECT_LT(found.worst, 1.01);
}

TEST(PoolLooksTest, OfManyStrategiesTheOneThatIsTakenIsAboutAsFastAsTheFastest) {
  const BesideAll found = CompareWithAll(ManyMeshes(), 25);
  EXPECT_LT(found.sum / found.cases, 1.005);
  EXPECT_LT(found.worst, 1.05);
}

TEST(PoolLooksTest, WithEffortThoroughThePlanIsTheBestOfAll) {
  v1::JobSpec job = PoolOf(FewMeshes());
  job.mutable_planning()->set_effort(v1::EFFORT_THOROUGH);
  const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const v1::Batch batch =
      MakeBatch({{0, 300}, {0, 40}, {0, 60}, {0, 20}, {0, 50}, {0, 30}, {0, 70}, {0, 25}});
  const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int i = 0; i < (*planner)->strategies(); ++i) {
    const auto alone = (*planner)->planner(i).MakePlan(batch, RunSerially, StopToken());
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_LE(plan->predicted().makespan_ns(), alone->predicted().makespan_ns());
  }
}

TEST(PlanLookTest, ACloserLookSeesNoMoreThanAGlanceAndNoneChangesWhenItIsAskedAgain) {
  for (const v1::Mesh& mesh : ManyMeshes()) {
    v1::JobSpec job = PoolOf({mesh});
    job.clear_strategies();
    const auto planner = Planner::Create(job, Planner::Explain::kCauseAlone);
    ASSERT_TRUE(planner.ok()) << planner.status();
    Random random(7);
    const v1::Batch batch = LongTailedBatch(random);
    const auto look = (*planner)->Look(batch);
    ASSERT_TRUE(look.ok()) << look.status();
    const auto glance = (*look)->AtNs(Sight::kGlance, RunSerially);
    const auto closer = (*look)->AtNs(Sight::kCloser, RunSerially);
    ASSERT_TRUE(glance.ok() && closer.ok());
    EXPECT_LE(*closer, *glance);
    EXPECT_GE(*closer, (*look)->BoundNs());
    EXPECT_EQ(*(*look)->AtNs(Sight::kCloser, RunSerially), *closer);
    EXPECT_EQ(*(*(*planner)->Look(batch))->AtNs(Sight::kCloser, RunSerially), *closer);
    // To see it takes nothing from the plan.
    const auto plan = (*planner)->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LT(static_cast<double>(plan->predicted().makespan_ns()), 1.02 * static_cast<double>(*closer));
  }
}

TEST(JudgeStartsTest, NoPlacementIsFasterThanRowsThatAreDividedEvenly) {
  v1::JobSpec job = PoolOf({MakeMesh(2, 1, 1, 4)});
  job.clear_strategies();
  const auto planner = Planner::Create(job, Planner::Explain::kCauseAlone);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const ScheduleSpace space((*planner)->costs(), (*planner)->job(),
                            AvailableBytes((*planner)->job(), (*planner)->costs()));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    std::vector<SampleTokens> tokens;
    for (uint32_t samples = random.Range(4, 20); samples > 0; --samples) {
      const uint32_t length = random.Range(10, 300);
      tokens.push_back({.source = 0, .target = length, .loss = length});
    }
    std::vector<Start> starts = MakeStarts(space, (*planner)->job(), tokens);
    const std::vector<JudgedStart> judged = JudgeStarts(space, tokens, starts, starts.size(), RunSerially);
    ASSERT_EQ(judged.size(), starts.size());
    EXPECT_TRUE(std::ranges::is_sorted(judged, {}, &JudgedStart::even_ns));
    for (const JudgedStart& one : judged) {
      const Candidate even = MakeCandidate(space, tokens, one.start, Candidate::Rows::kEven);
      const Candidate placed = MakeCandidate(space, tokens, one.start, Candidate::Rows::kPlaced);
      ASSERT_EQ(even.table.slots(), placed.table.slots());
      for (int slot = 0; slot < even.table.slots(); ++slot)
        EXPECT_LE(even.table.work_ns(slot), placed.table.work_ns(slot) + 4 * space.costs().stages());
    }
  }
}

}  // namespace
}  // namespace penstock::core
