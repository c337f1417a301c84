// How much slower links of a kind are than the costs say, by transfers and by sums of gradients.
#include "planner/core/calibrate/link_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "planner/core/calibrate/measured_reshards.h"

namespace penstock::core {
namespace {

using testing::ElementsAre;

MeasuredTransfer TransferOf(double ratio, Link link = Link::kInsideNode) {
  return {.from = 0, .to = 1, .link = link, .sent = ratio, .received = ratio};
}

MeasuredRing RingOf(double ratio, Link link = Link::kInsideNode) {
  return {.steps = {{0, 2}, {2, 0}}, .link = link, .ratio = ratio};
}

TEST(LinkFactorsTest, WithoutMeasurementsLinksAreAsFastAsTheCostsSay) {
  EXPECT_THAT(LinkFactors({}, {}, {}, {}), ElementsAre(1, 1));
}

TEST(LinkFactorsTest, TransfersCountBeforeSumsOfGradients) {
  EXPECT_THAT(LinkFactors({TransferOf(0.5)}, {RingOf(3)}, {}, {}), ElementsAre(0.5, 0.5));
}

TEST(LinkFactorsTest, AKindOfLinksWithoutTransfersIsMeasuredBySumsOfGradients) {
  EXPECT_THAT(LinkFactors({}, {RingOf(2), RingOf(2.1), RingOf(9)}, {}, {}), ElementsAre(2, 2));
  EXPECT_THAT(LinkFactors({TransferOf(0.5)}, {RingOf(4, Link::kBetweenNodes)}, {}, {}), ElementsAre(0.5, 4));
}

TEST(LinkFactorsTest, AKindOfLinksWithoutTransfersIsMeasuredByReshards) {
  EXPECT_THAT(LinkFactors({}, {}, {{.ratio = 2}, {.ratio = 2.1}, {.ratio = 9}}, {}), ElementsAre(2, 2));
  EXPECT_THAT(LinkFactors({TransferOf(0.5)}, {}, {{.link = Link::kBetweenNodes, .ratio = 4}}, {}),
              ElementsAre(0.5, 4));
  EXPECT_THAT(LinkFactors({TransferOf(0.5)}, {}, {{.ratio = 4}}, {}), ElementsAre(0.5, 0.5));
  EXPECT_THAT(LinkFactors({}, {}, {{.ratio = 0.3}}, {}), ElementsAre(1, 1));
}

// Two ranks a node, and one of the links between nodes is ten times slower.
TEST(LinkFactorsTest, AReshardWaitsForTheSlowestLinkOfItsKind) {
  PipelineShape shape;
  shape.stages.resize(1);
  shape.positions = 1;
  shape.position_of_stage = {0};
  const Nodes nodes(Topology(shape, /*replicas=*/4), 2);
  std::vector<MeasuredReshard> reshards = {{.ratio = 20}, {.link = Link::kBetweenNodes, .ratio = 20}};
  TakeSlownessOut({{0, 1, 4}, {1, 2, 10}, {3, 0, 5}}, nodes, &reshards);
  EXPECT_EQ(reshards[0].ratio, 5);
  EXPECT_EQ(reshards[1].ratio, 2);
}

// The other part of them may have gone on beside the last pass.
TEST(LinkFactorsTest, BySumsOfGradientsThatTakeLessLinksAreNotFaster) {
  EXPECT_THAT(LinkFactors({}, {RingOf(0.3)}, {}, {}), ElementsAre(1, 1));
}

TEST(LinkFactorsTest, ASlowLinkIsTakenToBeAsFastAsTheOthers) {
  const std::vector<SlowLink> slow = {{2, 0, 10}};
  EXPECT_THAT(LinkFactors({}, {RingOf(20)}, {}, slow), ElementsAre(2, 2));
}

TEST(LinkFactorsTest, AnUpdateIsWhatGatheringLeavesOfAStep) {
  const MeasuredStep alone = {.measured_ns = 300, .update_ns = 100};
  EXPECT_EQ(OptimizerFactor({alone}, {1, 1}, {}), 3);
  MeasuredStep gathering = {.measured_ns = 700, .update_ns = 100, .gather_ns = 200, .ring = {{0, 2}, {2, 0}}};
  EXPECT_EQ(OptimizerFactor({gathering}, {2, 9}, {}), 3);
  gathering.link = Link::kBetweenNodes;
  EXPECT_EQ(OptimizerFactor({gathering}, {9, 3}, {}), 1);
  EXPECT_EQ(OptimizerFactor({gathering}, {9, 1}, {{2, 0, 3}}), 1);
}

TEST(LinkFactorsTest, AStepThatIsShorterThanItsGatheringIsShorterInProportion) {
  const MeasuredStep step = {.measured_ns = 150, .update_ns = 100, .gather_ns = 200};
  EXPECT_EQ(OptimizerFactor({step}, {1, 1}, {}), 0.5);
  EXPECT_EQ(OptimizerFactor({}, {1, 1}, {}), 1);
}

}  // namespace
}  // namespace penstock::core
