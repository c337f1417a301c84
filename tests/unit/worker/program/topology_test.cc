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

// Two replicas of two stages, two context ranks of two tensor ranks each.
Topology StageGroups() {
  Topology topology;
  uint32_t rank = 0;
  for (uint32_t replica = 0; replica < 2; ++replica) {
    ReplicaTopology& made = topology.replicas.emplace_back();
    made.tensor = 2;
    for (uint32_t stage = 0; stage < 2; ++stage, rank += 4)
      made.stages.push_back({{rank, rank + 1, rank + 2, rank + 3}});
  }
  return topology;
}

TEST(TopologyTest, APlaceIsAContextRankAndATensorRank) {
  const GroupPlace place = StageGroups().PlaceOf(14);
  EXPECT_EQ(place.context, 1);
  EXPECT_EQ(place.contexts, 2);
  EXPECT_EQ(place.tensor, 0);
  EXPECT_EQ(place.tensors, 2);
  EXPECT_EQ(MeshTopology(3, 2).PlaceOf(4).ranks(), 1);
}

TEST(TopologyTest, TensorAndContextGroupsDivideAStageGroup) {
  const Topology topology = StageGroups();
  EXPECT_THAT(topology.StageGroupOf(6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(topology.TensorGroup(6), ElementsAre(6, 7));
  EXPECT_THAT(topology.ContextGroup(6), ElementsAre(4, 6));
  EXPECT_THAT(MeshTopology(3, 2).TensorGroup(4), ElementsAre(4));
  EXPECT_THAT(MeshTopology(3, 2).ContextGroup(4), ElementsAre(4));
}

TEST(TopologyTest, GradientsAreSummedByTensorRankOverReplicasAndContextRanks) {
  const Topology topology = StageGroups();
  EXPECT_THAT(topology.GradientGroups(0), ElementsAre(ElementsAre(0, 2, 8, 10)));
  EXPECT_THAT(topology.GradientGroups(7), ElementsAre(ElementsAre(5, 7, 13, 15)));
}

TEST(TopologyTest, GradientGroupsFollowTheReplicasWhateverTheirRanks) {
  const Topology topology = {{{{{{3}}, {{1}}}}, {{{{2}}, {{0}}}}}};
  EXPECT_THAT(topology.GradientGroups(2), ElementsAre(ElementsAre(3, 2)));
}

TEST(TopologyTest, EqualPlacesOfNeighbouringStagesAreLinked) {
  const Topology topology = StageGroups();
  EXPECT_THAT(topology.LinksOf(3), ElementsAre(ElementsAre(3, 7)));
  EXPECT_THAT(topology.LinksOf(12), ElementsAre(ElementsAre(8, 12)));
  EXPECT_THAT(topology.LineGroup(13), ElementsAre(9, 13));
  EXPECT_THAT(MeshTopology(3, 2).LineGroup(4), ElementsAre(3, 4, 5));
}

TEST(TopologyTest, ARankIsInTheGroupsOfItsGradientsItsReplicaItsPlaceAndTheWorld) {
  EXPECT_THAT(StageGroups().GroupsOf(5),
              UnorderedElementsAre(ElementsAre(5, 7, 13, 15), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7),
                                   ElementsAre(1, 5), ::testing::SizeIs(16)));
}

}  // namespace
}  // namespace penstock::worker
