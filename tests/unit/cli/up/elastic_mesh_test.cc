#include "planner/cli/up/elastic_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/mesh/mesh_ranks.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/strategy_list.h"
#include "planner/core/contract/total_layers.h"
#include "planner/core/strategies/strategy_planner.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

class ElasticMeshTest : public ::testing::Test {
 protected:
  ElasticMeshTest() {
    for (const core::GoldenJob& job : core::GoldenJobs()) {
      if (job.given.job.mesh().pipeline() < 2 || job.given.job.mesh().tensor() > 1) continue;
      job_ = job.given.job;
      batch_ = job.given.batch;
      break;
    }
    job_.mutable_planning()->clear_layers_per_stage();
    job_.mutable_planning()->clear_rank_of_stage();
    job_.mutable_planning()->set_memory_limit_bytes(int64_t{1} << 50);
  }

  absl::StatusOr<v1::Strategy> Fastest(uint32_t ranks, uint32_t least, bool side_by_side = true) const {
    return FastestStrategy(job_, {&batch_, 1}, {.ranks = ranks, .least = least, .side_by_side = side_by_side},
                           [](const std::string& text) { ADD_FAILURE() << text; });
  }

  static v1::Strategy StrategyOf(const v1::Mesh& mesh) {
    v1::Strategy strategy;
    *strategy.add_meshes()->mutable_mesh() = mesh;
    return strategy;
  }

  // As `up` goes on with it.
  double MakespanOn(const v1::Strategy& strategy) const {
    v1::JobSpec job = strategy.meshes_size() == 1 ? job_ : WithParameterShares(job_);
    job.mutable_planning()->set_effort(v1::EFFORT_FAST);
    SetStrategies({strategy}, &job);
    if (strategy.meshes_size() == 1) job.clear_strategies();
    const auto planner = core::StrategyPlanner::Create(job);
    EXPECT_TRUE(planner.ok()) << planner.status();
    const auto plan = (*planner)->MakePlan(batch_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return static_cast<double>(plan->predicted().makespan_ns());
  }

  v1::JobSpec job_;
  v1::Batch batch_;
};

TEST_F(ElasticMeshTest, TakesRanksThatAreThereAndMoreWhereTheyAreFaster) {
  *job_.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  for (const uint32_t ranks : {1U, 2U, 3U, 4U}) {
    const auto strategy = Fastest(ranks, 1);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_LE(RanksOf(*strategy), ranks);
  }
  EXPECT_EQ(RanksOf(*Fastest(1, 1)), 1);
  EXPECT_EQ(RanksOf(*Fastest(3, 3)), 3) << "as many as have to be";
}

// Side by side as well as alone.
TEST_F(ElasticMeshTest, IsNoSlowerThanAnyMeshOfAllRanks) {
  *job_.mutable_mesh() = MakeMesh(4, 2, 1, 1);
  for (const uint32_t ranks : {3U, 5U, 6U, 7U}) {
    const auto strategy = Fastest(ranks, 1);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_LE(RanksOf(*strategy), ranks);
    EXPECT_TRUE(strategy->meshes_size() == 1 || RanksOf(*strategy) == ranks);
    for (uint32_t pipeline = 1; pipeline <= ranks; ++pipeline) {
      if (ranks % pipeline != 0) continue;
      const double alone = MakespanOn(StrategyOf(MakeMesh(pipeline, ranks / pipeline, 1, 1)));
      EXPECT_LE(MakespanOn(*strategy), 1.01 * alone) << ranks << " ranks, pp " << pipeline;
    }
  }
}

TEST_F(ElasticMeshTest, IsOneMeshWhereRanksValidate) {
  *job_.mutable_mesh() = MakeMesh(4, 2, 1, 1);
  // So little that single meshes of few stages do not fit, and those of more leave ranks idle.
  job_.mutable_planning()->set_memory_limit_bytes(281'473);
  const auto any = Fastest(7, 1);
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_GT(any->meshes_size(), 1);
  const auto one = Fastest(7, 1, /*side_by_side=*/false);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->meshes_size(), 1);
}

TEST_F(ElasticMeshTest, StagesThatAreGivenAreThoseOfTheirDepth) {
  *job_.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  const auto layers = static_cast<uint32_t>(core::TotalLayers(job_.model()));
  for (const uint32_t stage : {layers - 1, 1U}) job_.mutable_planning()->add_layers_per_stage(stage);
  EXPECT_EQ(RanksOf(*Fastest(1, 1)), 1) << "which has one stage";
  EXPECT_LE(RanksOf(*Fastest(3, 2)), 3);
}

TEST_F(ElasticMeshTest, WhatAProfileSaysOfSingleRanksIsNotOfThoseThatAreLeft) {
  *job_.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  v1::SlowRank& rank = *job_.mutable_profile()->add_slow_ranks();
  rank.set_rank(3);
  rank.set_factor(2);
  v1::SlowLink& link = *job_.mutable_profile()->add_slow_links();
  link.set_from(0);
  link.set_to(2);
  link.set_factor(3);
  EXPECT_EQ(RanksOf(*Fastest(1, 1)), 1);
  EXPECT_EQ(RanksOf(*Fastest(2, 2, /*side_by_side=*/false)), 2);
}

// Four ranks that divide 4 experts, of which two are left.
TEST_F(ElasticMeshTest, DividesExpertsByFewerRanksWhereNoStageGroupHasAsMany) {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  core::DivideExperts(job);
  const v1::Batch batch = core::MakeBatch({{0, 20}, {0, 30}, {0, 12}, {0, 40}});
  const auto strategy =
      FastestStrategy(job, {&batch, 1}, {.ranks = 2, .least = 2}, [](const std::string&) {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_EQ(RanksOf(*strategy), 2);
  EXPECT_LE(ExpertRanks(strategy->meshes(0).mesh()), 2U);
}

TEST_F(ElasticMeshTest, SaysWhyThereIsNone) {
  *job_.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  EXPECT_THAT(std::string(Fastest(1, 2).status().message()),
              HasSubstr("no mesh of 2 to 1 ranks can train this job: none has so many"));
  job_.mutable_planning()->set_memory_limit_bytes(1);
  EXPECT_THAT(std::string(Fastest(4, 1).status().message()),
              HasSubstr("no mesh of 1 to 4 ranks can train this job: "));
  // Nobody knows which rank the one with little memory will be.
  job_.mutable_planning()->set_memory_limit_bytes(int64_t{1} << 50);
  v1::RankMemoryLimit* limit = job_.mutable_planning()->add_rank_memory_limits();
  limit->set_rank(3);
  limit->set_bytes(1);
  EXPECT_THAT(std::string(Fastest(3, 1).status().message()),
              HasSubstr("no mesh of 1 to 3 ranks can train this job: "));
}

}  // namespace
}  // namespace penstock::cli
