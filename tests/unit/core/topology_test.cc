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

// The same, with two context ranks of three tensor ranks at every position.
Topology VOfGroups() {
  PipelineShape shape = V().shape();
  shape.group = {2, 3};
  return {shape, 3};
}

TEST(TopologyTest, PlacesAreContextRankByContextRank) {
  const Topology topology = VOfGroups();
  EXPECT_EQ(topology.ranks(), 3 * 2 * 6);
  EXPECT_THAT(topology.GroupAt(1, 1), ElementsAre(18, 19, 20, 21, 22, 23));
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const RankPlace place = topology.PlaceOf(rank);
    EXPECT_EQ(((place.replica * 2 + place.position) * 2 + place.context) * 3 + place.tensor, rank);
    const int at = place.context * 3 + place.tensor;
    EXPECT_EQ(topology.RankAt(place.replica, place.position, at), rank);
    for (const int stage : topology.StagesOf(rank))
      EXPECT_EQ(topology.RankOf(place.replica, stage, at), rank);
  }
  EXPECT_THAT(topology.StagesOf(5), ElementsAre(0, 3));
  EXPECT_THAT(topology.StagesOf(6), ElementsAre(1, 2));
}

TEST(TopologyTest, ContextRanksAndReplicasSumTheGradientsOfATensorRank) {
  const Topology topology = VOfGroups();
  EXPECT_THAT(topology.GradientGroup(0, 1), ElementsAre(1, 4, 13, 16, 25, 28));
  EXPECT_THAT(topology.GradientGroup(2, 0), ElementsAre(6, 9, 18, 21, 30, 33));
  EXPECT_THAT(topology.PipelineGroup(1), ElementsAre(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23));
}

}  // namespace
}  // namespace penstock::core
