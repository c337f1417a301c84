#include "planner/core/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::core {
namespace {

using ::testing::ElementsAre;

// Four stages, up and down the two ranks of each of three replicas.
Topology V() {
  PipelineShape shape;
  shape.stages.resize(4);
  shape.positions = 2;
  shape.position_of_stage = {0, 1, 1, 0};
  return {shape, 3};
}

TEST(TopologyTest, KnowsWhereEveryRankIs) {
  const Topology topology = V();
  EXPECT_EQ(topology.ranks(), 6);
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const RankPlace place = topology.PlaceOf(rank);
    EXPECT_EQ(topology.RankAt(place.replica, place.position), rank);
    for (const int stage : topology.StagesOf(rank)) EXPECT_EQ(topology.RankOf(place.replica, stage), rank);
  }
  EXPECT_THAT(topology.StagesOf(4), ElementsAre(0, 3));
  EXPECT_THAT(topology.StagesOf(5), ElementsAre(1, 2));
}

TEST(TopologyTest, ReplicasSumGradientsAndPipelinesShareTheNorm) {
  const Topology topology = V();
  EXPECT_THAT(topology.GradientGroup(2, 0), ElementsAre(1, 3, 5));
  EXPECT_THAT(topology.GradientGroup(3, 0), ElementsAre(0, 2, 4));
  EXPECT_THAT(topology.PipelineGroup(1), ElementsAre(2, 3));
}

TEST(TopologyTest, FewerReplicasHaveTheFirstRanks) {
  const Topology topology = V().WithReplicas(1);
  EXPECT_EQ(topology.ranks(), 2);
  EXPECT_THAT(topology.GradientGroup(2, 0), ElementsAre(1));
}

}  // namespace
}  // namespace penstock::core
