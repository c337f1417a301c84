// Links that are slower than others of their kind, told from what transfers took at both ends.
#include "planner/core/calibrate/find_slow_links.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace penstock::core {
namespace {

std::vector<MeasuredTransfer> Transfers(const std::vector<std::pair<std::pair<int, int>, double>>& links) {
  std::vector<MeasuredTransfer> transfers;
  for (const auto& [ends, ratio] : links) {
    // Some waited for their receivers, others for their senders, and some ends for a little while both.
    for (const double waited : {1.0, 1.0, 1.1, 3.0, 1.02, 7.0}) {
      transfers.push_back(
          {.from = ends.first, .to = ends.second, .sent = ratio * waited, .received = ratio * (8 - waited)});
    }
  }
  return transfers;
}

TEST(FindSlowLinksTest, LinksThatAreClearlySlowerThanOthersOfTheirKindAreFound) {
  const auto transfers = Transfers({{{0, 1}, 20}, {{1, 0}, 1}, {{2, 3}, 1.1}, {{3, 2}, 1.4}, {{4, 5}, 0.9}});
  const std::vector<SlowLink> slow = FindSlowLinks(transfers, {}, {});
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].from, 0);
  EXPECT_EQ(slow[0].to, 1);
  EXPECT_NEAR(slow[0].factor, 20 / 1.1, 0.1);
  // One that was slow stays so a little longer.
  const SlowLink before{3, 2, 2};
  EXPECT_EQ(FindSlowLinks(transfers, {}, {&before, 1}).size(), 2U);
  EXPECT_TRUE(FindSlowLinks(Transfers({{{0, 1}, 20}}), {}, {}).empty());
  EXPECT_TRUE(FindSlowLinks({}, {}, {}).empty());
}

TEST(FindSlowLinksTest, ALinkThatTooLittleGoesOverStaysAsItWas) {
  const auto transfers = Transfers({{{0, 1}, 1}, {{1, 0}, 1}});
  const std::vector<SlowLink> before = {{0, 1, 4}, {3, 2, 7}};
  const std::vector<SlowLink> slow = FindSlowLinks(transfers, {}, before);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].from, 3);
  EXPECT_EQ(slow[0].to, 2);
  EXPECT_EQ(slow[0].factor, 7);
}

TEST(FindSlowLinksTest, LinksOfAnotherKindAreNotComparedWith) {
  std::vector<MeasuredTransfer> transfers = Transfers({{{0, 1}, 1}, {{1, 0}, 1}});
  for (MeasuredTransfer between : Transfers({{{1, 2}, 9}, {{2, 1}, 9}})) {
    between.link = Link::kBetweenNodes;
    transfers.push_back(between);
  }
  EXPECT_TRUE(FindSlowLinks(transfers, {}, {}).empty());
}

TEST(FindSlowLinksTest, ARingThatIsSlowerThanOthersOfItsKindNamesItsStepsButNotThoseOfTransfers) {
  const std::vector<MeasuredTransfer> transfers = Transfers({{{1, 3}, 1}, {{3, 1}, 1}});
  std::vector<MeasuredRing> rings;
  for (const double waited : {1.0, 1.2, 1.0, 4.0, 1.0}) {
    rings.push_back({.steps = {{0, 2}, {2, 0}}, .link = Link::kBetweenNodes, .ratio = 3 * waited});
    rings.push_back({.steps = {{1, 3}, {3, 4}, {4, 1}}, .link = Link::kBetweenNodes, .ratio = 21 * waited});
    rings.push_back({.steps = {{5, 6}, {6, 5}}, .link = Link::kBetweenNodes, .ratio = 3 * waited});
    rings.push_back({.steps = {{7, 8}, {8, 7}}, .link = Link::kInsideNode, .ratio = 21 * waited});
  }
  const std::vector<SlowLink> slow = FindSlowLinks(transfers, rings, {});
  ASSERT_EQ(slow.size(), 2U);
  EXPECT_EQ(std::pair(slow[0].from, slow[0].to), std::pair(3, 4));
  EXPECT_EQ(std::pair(slow[1].from, slow[1].to), std::pair(4, 1));
  EXPECT_NEAR(slow[0].factor, 7, 1e-9);
  EXPECT_NEAR(slow[1].factor, 7, 1e-9);
}

}  // namespace
}  // namespace penstock::core
