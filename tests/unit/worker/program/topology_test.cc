#include "worker/program/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// One stage a rank, the ranks of one replica after those of the other.
Topology MeshTopology(uint32_t pipeline, uint32_t replicas) {
  Topology topology;
  uint32_t rank = 0;
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    ReplicaTopology& made = topology.replicas.emplace_back();
    for (uint32_t stage = 0; stage < pipeline; ++stage) made.stages.push_back({{rank++}});
  }
  return topology;
}

TEST(TopologyTest, AMeshHasTheRanksOfOneReplicaAfterThoseOfTheOther) {
  const Topology topology = MeshTopology(3, 2);
  EXPECT_EQ(topology.ranks(), 6u);
  EXPECT_THAT(topology.PipelineGroup(1), ElementsAre(0, 1, 2));
  EXPECT_THAT(topology.PipelineGroup(5), ElementsAre(3, 4, 5));
  EXPECT_THAT(topology.GradientGroups(1), ElementsAre(ElementsAre(1, 4)));
  EXPECT_THAT(topology.GradientGroups(4), ElementsAre(ElementsAre(1, 4)));
  EXPECT_THAT(topology.WorldGroup(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(TopologyTest, OneRankIsInItsGroupsAlone) {
  const Topology topology = MeshTopology(1, 1);
  EXPECT_THAT(topology.PipelineGroup(0), ElementsAre(0));
  EXPECT_THAT(topology.GradientGroups(0), ElementsAre(ElementsAre(0)));
}

TEST(TopologyTest, SeveralStagesOnARankMakeTheGroupsOfOne) {
  // Two replicas whose stages run up and down their two ranks, as a V.
  const Topology topology = {{{{{{0}}, {{1}}, {{1}}, {{0}}}}, {{{{2}}, {{3}}, {{3}}, {{2}}}}}};
  EXPECT_THAT(topology.PipelineGroup(1), ElementsAre(0, 1));
  EXPECT_THAT(topology.GradientGroups(1), ElementsAre(ElementsAre(1, 3)));
  EXPECT_THAT(topology.StagesOf(1), ElementsAre(1, 2));
  EXPECT_THAT(topology.GroupsOf(2),
              UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(2, 3), ElementsAre(0, 1, 2, 3)));
}

TEST(TopologyTest, ReplicasMayLieDifferently) {
  // Rank 2 holds both stages of the second replica.
  const Topology topology = {{{{{{0}}, {{1}}}}, {{{{2}}, {{2}}}}}};
  EXPECT_THAT(topology.PipelineGroup(2), ElementsAre(2));
  EXPECT_THAT(topology.GradientGroups(2), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 2)));
  EXPECT_THAT(topology.GradientGroups(1), ElementsAre(ElementsAre(1, 2)));
}

TEST(TopologyTest, LinksAreBetweenNeighbouringStagesInAnOrderThatAllCanFollow) {
  const Topology topology = MeshTopology(4, 2);
  EXPECT_THAT(topology.LinksOf(0), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(topology.LinksOf(1), ElementsAre(ElementsAre(0, 1), ElementsAre(1, 2)));
  EXPECT_THAT(topology.LinksOf(2), ElementsAre(ElementsAre(2, 3), ElementsAre(1, 2)));
  EXPECT_THAT(topology.LinksOf(7), ElementsAre(ElementsAre(6, 7)));
}

TEST(TopologyTest, ALinkThatSeveralStagesShareIsThereOnce) {
  const Topology fold = {{{{{{0}}, {{1}}, {{1}}, {{0}}}}}};
  EXPECT_THAT(fold.LinksOf(0), ElementsAre(ElementsAre(0, 1)));
  const Topology loop = {{{{{{0}}, {{1}}, {{2}}, {{0}}, {{1}}, {{2}}}}}};
  EXPECT_THAT(loop.LinksOf(2), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 2)));
}

}  // namespace
}  // namespace penstock::worker
