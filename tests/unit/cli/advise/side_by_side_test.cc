// Meshes side by side that are proposed: of all ranks, in an order that nodes suit, and faster than one mesh
// where no mesh uses the ranks well.
#include "planner/cli/advise/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "planner/cli/advise/length_ranges.h"
#include "planner/cli/advise/pool_report.h"
#include "planner/cli/advise/strategy_pool.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::JobSpec JobWithShares() {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->clear_layers_per_stage();
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  // Context ranks exchange nearly for nothing.
  v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
  cluster->set_intra_node_bytes_per_second(1e13);
  cluster->set_inter_node_bytes_per_second(1e13);
  cluster->set_intra_node_latency_ns(1);
  cluster->set_inter_node_latency_ns(1);
  return job;
}

// A long sample beside many short ones.
std::vector<v1::Batch> LongBesideShort() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths = {{0, 900}};
  for (uint32_t i = 0; i < 24; ++i) lengths.emplace_back(0, 40 + i * 7 % 30);
  return {core::MakeBatch(lengths), core::MakeBatch(lengths)};
}

std::vector<v1::Strategy> Proposed(uint32_t ranks, const SideBySideLimits& limits = {}) {
  TaskPool threads(1);
  const auto proposed = ProposeSideBySide(JobWithShares(), ranks, LongBesideShort(), limits, &threads);
  EXPECT_TRUE(proposed.ok()) << proposed.status();
  return proposed.value_or(std::vector<v1::Strategy>());
}

TEST(SideBySideProposalTest, HaveAllRanksAndTheLargestGroupsFirst) {
  for (const uint32_t ranks : {7U, 12U}) {
    const std::vector<v1::Strategy> proposed = Proposed(ranks);
    EXPECT_THAT(proposed, Not(IsEmpty()));
    for (const v1::Strategy& strategy : proposed) {
      EXPECT_EQ(RanksOf(strategy), ranks);
      EXPECT_GT(strategy.meshes_size(), 1);
      EXPECT_LE(strategy.meshes_size(), 4);
      for (int mesh = 1; mesh < strategy.meshes_size(); ++mesh)
        EXPECT_LE(GroupRanks(strategy.meshes(mesh).mesh()), GroupRanks(strategy.meshes(mesh - 1).mesh()));
    }
  }
}

TEST(SideBySideProposalTest, DegreesThatAreGivenAreThoseOfEveryMesh) {
  SideBySideLimits limits;
  limits.given.pipeline = 1;
  limits.most_context = 2;
  const std::vector<v1::Strategy> proposed = Proposed(7, limits);
  EXPECT_THAT(proposed, Not(IsEmpty()));
  for (const v1::Strategy& strategy : proposed) {
    for (const v1::StrategyMesh& mesh : strategy.meshes()) {
      EXPECT_EQ(mesh.mesh().pipeline(), 1);
      EXPECT_LE(ContextRanks(mesh.mesh()), 2);
    }
  }
  limits.given.data = 2;
  EXPECT_THAT(Proposed(7, limits), IsEmpty());
  EXPECT_THAT(Proposed(7, {.meshes = 1}), IsEmpty());
}

TEST(SideBySideProposalTest, APoolOfRanksThatNoMeshUsesWellHasMeshesSideBySide) {
  TaskPool threads(1);
  const v1::JobSpec job = JobWithShares();
  const std::vector<v1::Batch> batches = LongBesideShort();
  const auto single = SingleMeshes(job, 7, 25);
  const auto all = StrategiesToTry(job, 7, batches, {}, &threads);
  ASSERT_TRUE(single.ok() && all.ok());
  const auto without = ProposePool(job, *single, batches, {}, &threads);
  const auto with = ProposePool(job, *all, batches, {}, &threads);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_LT(with->pool_ns, 0.9 * without->pool_ns);
  const PooledStrategy& best = with->strategies.front();
  EXPECT_GT(best.strategy.meshes_size(), 1);
  // Each mesh is said to have what the plans gave it.
  uint64_t samples = 0;
  for (const MeshSamples& mesh : best.samples) samples += mesh.samples;
  EXPECT_EQ(samples, 50);
  EXPECT_THAT(PoolText(*with), AllOf(HasSubstr(" to 900 tokens"), HasSubstr(" of the tokens)")));
}

TEST(LengthRangesTest, EverySampleIsInOneRangeAndRangesGrow) {
  const std::vector<v1::Batch> batches = {core::MakeBatch({{0, 1000}, {0, 990}, {0, 3}, {0, 500}}),
                                          core::MakeBatch({{0, 10}, {0, 12}})};
  const LengthRanges ranges = RangesOf(batches, 5);
  ASSERT_LE(ranges.samples.samples_size(), 5);
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(std::accumulate(ranges.counts[i].begin(), ranges.counts[i].end(), 0.0),
              batches[i].samples_size());
  }
  EXPECT_EQ(std::accumulate(ranges.mean_counts.begin(), ranges.mean_counts.end(), 0.0), 3);
  for (int i = 1; i < ranges.samples.samples_size(); ++i)
    EXPECT_GT(ranges.samples.samples(i).target_tokens(), ranges.samples.samples(i - 1).target_tokens());
  // The mean of those that are alike.
  EXPECT_EQ(ranges.samples.samples(ranges.samples.samples_size() - 1).target_tokens(), 995);
  EXPECT_THAT(RangesOf({}, 5).samples.samples(), IsEmpty());
}

}  // namespace
}  // namespace penstock::cli
