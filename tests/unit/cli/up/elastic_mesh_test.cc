#include "planner/cli/up/elastic_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/mesh/mesh_ranks.h"
#include "tests/unit/core/golden_jobs.h"

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

  v1::JobSpec job_;
  v1::Batch batch_;
};

TEST_F(ElasticMeshTest, TakesRanksThatAreThereAndMoreWhereTheyAreFaster) {
  *job_.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  for (const uint32_t ranks : {1U, 2U, 3U, 4U}) {
    const auto mesh = FastestMesh(job_, batch_, ranks, 1);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_LE(RanksOf(*mesh), ranks);
    EXPECT_LE(mesh->pipeline(), 2);
  }
  EXPECT_EQ(RanksOf(*FastestMesh(job_, batch_, 1, 1)), 1);
  EXPECT_EQ(RanksOf(*FastestMesh(job_, batch_, 3, 3)), 3) << "as many as have to be";
}

TEST_F(ElasticMeshTest, NeverTakesLessThanTheFastestMeshAndHasAllRanksWhereMeshesAreSideBySide) {
  *job_.mutable_mesh() = MakeMesh(4, 2, 1, 1);
  for (const uint32_t ranks : {3U, 5U, 7U}) {
    const auto strategy = FastestStrategy(job_, batch_, ranks, 1);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_LE(RanksOf(*strategy), ranks);
    EXPECT_TRUE(strategy->meshes_size() == 1 || RanksOf(*strategy) == ranks);
    for (const v1::StrategyMesh& mesh : strategy->meshes()) {
      EXPECT_LE(mesh.mesh().pipeline(), 4);
      EXPECT_EQ(ContextRanks(mesh.mesh()), 1);
      EXPECT_EQ(TensorRanks(mesh.mesh()), 1);
    }
  }
  EXPECT_THAT(std::string(FastestStrategy(job_, batch_, 1, 2).status().message()),
              HasSubstr("no mesh of 2 to 1 ranks can train this job: none has so many"));
}

TEST_F(ElasticMeshTest, SaysWhyThereIsNone) {
  *job_.mutable_mesh() = MakeMesh(2, 2, 1, 1);
  EXPECT_THAT(std::string(FastestMesh(job_, batch_, 1, 2).status().message()),
              HasSubstr("no mesh of 2 to 1 ranks can train this job: none has so many"));
  job_.mutable_planning()->set_memory_limit_bytes(1);
  EXPECT_THAT(std::string(FastestMesh(job_, batch_, 4, 1).status().message()),
              HasSubstr("no mesh of 1 to 4 ranks can train this job: "));
}

}  // namespace
}  // namespace penstock::cli
