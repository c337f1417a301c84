// Pools of strategies beside what trying all of them gives.
#include "planner/cli/advise/strategy_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/parallel/task_pool.h"
#include "planner/cli/advise/pool_report.h"
#include "planner/cli/strategy_list.h"
#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

constexpr double kNever = std::numeric_limits<double>::infinity();

v1::JobSpec PooledJob() { return core::GptJob(1, 1, v1::POLICY_DYNAMIC); }

// Many short samples in one, few and one long one in the other.
std::vector<v1::Batch> MixedBatches() {
  return {core::MakeBatch({{0, 60}, {0, 50}, {0, 70}, {0, 60}, {0, 55}, {0, 65}, {0, 60}, {0, 58}}),
          core::MakeBatch({{0, 900}, {0, 20}, {0, 30}, {0, 25}, {0, 25}, {0, 25}, {0, 25}, {0, 25}}),
          core::MakeBatch({{0, 300}, {0, 320}, {0, 30}, {0, 280}, {0, 25}, {0, 25}, {0, 310}, {0, 25}})};
}

std::vector<v1::Strategy> AllMeshes(uint32_t ranks) {
  const auto meshes = SingleMeshes(PooledJob(), ranks, 8);
  EXPECT_TRUE(meshes.ok()) << meshes.status();
  return meshes.value_or(std::vector<v1::Strategy>());
}

StrategyPool PoolOf(const std::vector<v1::Strategy>& meshes, const PoolLimits& limits) {
  TaskPool threads(1);
  const auto pool = ProposePool(PooledJob(), meshes, MixedBatches(), limits, &threads);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return pool.value_or(StrategyPool());
}

// Every batch on every mesh, nanoseconds.
std::vector<std::vector<double>> AllTimes(const std::vector<v1::Strategy>& meshes) {
  std::vector<std::vector<double>> times;
  for (const v1::Strategy& strategy : meshes) {
    v1::JobSpec job = PooledJob();
    *job.mutable_mesh() = strategy.meshes(0).mesh();
    job.mutable_planning()->set_parameter_shares(true);
    job.mutable_planning()->set_effort(v1::EFFORT_FAST);
    const auto planner = core::Planner::Create(job, core::Planner::Explain::kCauseAlone);
    std::vector<double>& of_mesh = times.emplace_back();
    for (const v1::Batch& batch : MixedBatches()) {
      const auto plan = planner.ok() ? (*planner)->MakePlan(batch) : planner.status();
      of_mesh.push_back(plan.ok() ? static_cast<double>(plan->predicted().makespan_ns()) : kNever);
    }
  }
  return times;
}

double Mean(const std::vector<double>& times) {
  double sum = 0;
  for (const double time : times) sum += time;
  return sum / static_cast<double>(times.size());
}

TEST(StrategyPoolTest, BeginsWithTheMeshThatIsBestForAllBatches) {
  for (const uint32_t ranks : {4, 8}) {
    const std::vector<v1::Strategy> meshes = AllMeshes(ranks);
    double best = kNever;
    for (const std::vector<double>& times : AllTimes(meshes)) best = std::min(best, Mean(times));
    const StrategyPool pool = PoolOf(meshes, {.strategies = 1});
    ASSERT_EQ(pool.strategies.size(), 1);
    EXPECT_NEAR(pool.alone_ns, best, 1);
    EXPECT_NEAR(pool.pool_ns, best, 1);
  }
}

TEST(StrategyPoolTest, WithoutALimitEachBatchHasItsFastestMesh) {
  for (const uint32_t ranks : {4, 8}) {
    const std::vector<v1::Strategy> meshes = AllMeshes(ranks);
    const std::vector<std::vector<double>> times = AllTimes(meshes);
    std::vector<double> fastest(MixedBatches().size(), kNever);
    for (const std::vector<double>& of_mesh : times)
      for (size_t batch = 0; batch < fastest.size(); ++batch)
        fastest[batch] = std::min(fastest[batch], of_mesh[batch]);
    const StrategyPool pool =
        PoolOf(meshes, {.strategies = static_cast<int>(meshes.size()), .least_gain = 0});
    EXPECT_NEAR(pool.pool_ns, Mean(fastest), 1);
    EXPECT_GT(pool.strategies.size(), 1);
    EXPECT_LT(pool.pool_ns, pool.alone_ns);
  }
}

TEST(StrategyPoolTest, StagesOfAPipelineAreThoseThatTheJobWillHave) {
  v1::JobSpec job = PooledJob();
  const std::vector<v1::Batch> batches = MixedBatches();
  for (const v1::Sample& sample : batches[1].samples())
    job.mutable_planning()->add_typical_samples()->set_target_tokens(sample.target_tokens());
  job.mutable_mesh()->set_pipeline(2);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  const auto mean_of = [&](v1::StageSplit split) {
    job.mutable_planning()->set_stage_split(split);
    const auto planner = core::Planner::Create(job);
    double sum = 0;
    for (const v1::Batch& batch : batches)
      sum += static_cast<double>((*planner)->MakePlan(batch)->predicted().makespan_ns());
    return sum / static_cast<double>(batches.size());
  };
  const double chosen = mean_of(v1::STAGE_SPLIT_AUTO);
  ASSERT_LT(chosen, mean_of(v1::STAGE_SPLIT_EVEN));
  v1::Strategy pipeline;
  *pipeline.add_meshes()->mutable_mesh() = job.mesh();
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  TaskPool threads(1);
  const auto pool = ProposePool(job, {pipeline}, batches, {}, &threads);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_NEAR(pool->alone_ns, chosen, 1);
}

TEST(StrategyPoolTest, AStrategyThatGainsTooLittleIsLeftOut) {
  const std::vector<v1::Strategy> meshes = AllMeshes(8);
  const size_t all = PoolOf(meshes, {.strategies = 8, .least_gain = 0}).strategies.size();
  EXPECT_LT(PoolOf(meshes, {.strategies = 8, .least_gain = 0.9}).strategies.size(), all);
}

TEST(StrategyPoolTest, EveryBatchIsOneStrategys) {
  const StrategyPool pool = PoolOf(AllMeshes(8), {.least_gain = 0});
  std::vector<int> batches;
  for (const PooledStrategy& strategy : pool.strategies) {
    EXPECT_LE(strategy.mean_ns, strategy.alone_ns);
    batches.insert(batches.end(), strategy.batches.begin(), strategy.batches.end());
  }
  EXPECT_THAT(batches, ::testing::UnorderedElementsAre(0, 1, 2));
}

TEST(StrategyPoolTest, WhereNothingFitsTheErrorSaysWhy) {
  v1::JobSpec job = PooledJob();
  job.mutable_planning()->set_memory_limit_bytes(1000);
  TaskPool threads(1);
  const auto pool = ProposePool(job, AllMeshes(4), MixedBatches(), {}, &threads);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()), HasSubstr("no strategy can hold all of these batches: "));
  EXPECT_THAT(std::string(pool.status().message()), HasSubstr("limit 1000"));
}

TEST(PoolReportTest, NamesTheFlagThatTakesThePool) {
  const StrategyPool pool = PoolOf(AllMeshes(8), {.least_gain = 0});
  const std::string text = PoolText(pool);
  EXPECT_THAT(text, HasSubstr(absl::StrCat("--strategies '", StrategyNames(StrategiesOf(pool)), "'")));
  const auto read = ReadStrategies(StrategyNames(StrategiesOf(pool)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), pool.strategies.size());
}

}  // namespace
}  // namespace penstock::cli
