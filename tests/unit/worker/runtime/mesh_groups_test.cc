#include "worker/runtime/mesh_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

TEST(MeshGroups, DivideTheRanksByReplicaAndByPosition) {
  const JobConfig job = {.job_id = "job", .model = {}, .pipeline = 3, .replicas = 2};
  EXPECT_THAT(PipelineGroup(job, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(PipelineGroup(job, 5), ElementsAre(3, 4, 5));
  EXPECT_THAT(GradientGroup(job, 1), ElementsAre(1, 4));
  EXPECT_THAT(GradientGroup(job, 4), ElementsAre(1, 4));
  EXPECT_THAT(WorldGroup(job), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(MeshGroups, OfOneRankHoldItAlone) {
  const JobConfig job = {.job_id = "job", .model = {}};
  EXPECT_THAT(PipelineGroup(job, 0), ElementsAre(0));
  EXPECT_THAT(GradientGroup(job, 0), ElementsAre(0));
}

}  // namespace
}  // namespace penstock::worker
