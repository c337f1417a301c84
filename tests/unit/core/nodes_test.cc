#include "planner/core/topology/nodes.h"

#include <gtest/gtest.h>

namespace penstock::core {
namespace {

constexpr Link kNear = Link::kInsideNode;
constexpr Link kFar = Link::kBetweenNodes;

// One stage a position.
Topology Mesh(int positions, GroupShape group, int replicas) {
  PipelineShape shape;
  shape.stages.resize(positions);
  shape.positions = positions;
  for (int position = 0; position < positions; ++position) shape.position_of_stage.push_back(position);
  shape.group = group;
  return {shape, replicas};
}

TEST(NodesTest, GroupsThatFillANodeStayInside) {
  const Nodes nodes(Mesh(2, {4, 2}, 2), 8);
  EXPECT_EQ(nodes.OfTensorRanks(), kNear);
  for (const int ranks : {1, 2, 4}) {
    for (int first = 0; first < 4; first += ranks) EXPECT_EQ(nodes.OfSpan(first, ranks), kNear);
  }
  EXPECT_EQ(nodes.Between(7, 8), kFar);
  EXPECT_EQ(nodes.Between(8, 15), kNear);
}

TEST(NodesTest, HalfAGroupANodeDividesItsWidestSpanAlone) {
  const Nodes nodes(Mesh(2, {4, 2}, 1), 4);
  EXPECT_EQ(nodes.OfTensorRanks(), kNear);
  EXPECT_EQ(nodes.OfSpan(0, 2), kNear);
  EXPECT_EQ(nodes.OfSpan(2, 2), kNear);
  EXPECT_EQ(nodes.OfSpan(0, 4), kFar);
}

// Nodes of three ranks: of the first group ranks 0, 1, 2 | 3, of the second 4, 5 | 6, 7, of the third 8 | 9,
// 10, 11.
TEST(NodesTest, WhatStraddlesNodesInOneGroupCountsAsSlowInAll) {
  const Nodes nodes(Mesh(3, {4, 1}, 1), 3);
  EXPECT_EQ(nodes.OfTensorRanks(), kNear);
  EXPECT_EQ(nodes.OfSpan(0, 2), kFar);
  EXPECT_EQ(nodes.OfSpan(2, 2), kFar);
  const Nodes one_group(Mesh(1, {4, 1}, 1), 3);
  EXPECT_EQ(one_group.OfSpan(0, 2), kNear);
  EXPECT_EQ(one_group.OfSpan(2, 2), kFar);
}

// Nodes of three ranks, two tensor ranks: context rank 1 of the first group is ranks 2 | 3.
TEST(NodesTest, TensorRanksOfOneContextRankMayStraddle) {
  const Nodes nodes(Mesh(1, {2, 2}, 1), 3);
  EXPECT_EQ(nodes.OfTensorRanks(), kFar);
  EXPECT_EQ(nodes.OfSpan(0, 1), kNear);
  EXPECT_EQ(nodes.OfSpan(1, 1), kFar);
  EXPECT_EQ(nodes.OfSpan(0, 2), kFar);
}

TEST(NodesTest, LaterReplicasCountToo) {
  // The second replica begins in the middle of a node.
  EXPECT_EQ(Nodes(Mesh(1, {4, 1}, 1), 6).OfSpan(0, 4), kNear);
  EXPECT_EQ(Nodes(Mesh(1, {4, 1}, 2), 6).OfSpan(0, 4), kFar);
  EXPECT_EQ(Nodes(Mesh(1, {4, 1}, 2), 6).OfSpan(0, 2), kNear);
}

}  // namespace
}  // namespace penstock::core
