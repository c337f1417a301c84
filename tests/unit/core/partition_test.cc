// Cutting batches into micro-batches, against brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "planner/core/partition/contiguous_partition.h"
#include "planner/core/partition/groups.h"
#include "planner/core/partition/sample_order.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;

TEST(GroupsTest, FixedSizeLeavesTheRestInTheLastGroup) {
  EXPECT_THAT(FixedSizeGroups(5, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(GroupsTest, ABudgetIsFilledInOrderOfArrival) {
  EXPECT_THAT(BudgetGroups(std::vector<double>{3, 3, 9, 1, 5}, 6),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3, 4)));
}

TEST(GroupsTest, FirstFitDecreasingFillsTheFirstGroupWithRoom) {
  EXPECT_THAT(FirstFitDecreasing(std::vector<double>{2, 7, 3, 5, 3}, 10),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4, 0)));
}

TEST(GroupsTest, BalancedGroupsGiveTheNextLargestToTheSmallest) {
  EXPECT_THAT(BalancedGroups(std::vector<double>{5, 4, 3, 3, 3}, 2),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2, 4)));
  EXPECT_THAT(BalancedGroups(std::vector<double>{5, 4}, 4), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(GroupsTest, SmallEndsGetAboutAQuarterOfTheOthers) {
  const Groups groups = BalancedGroups(std::vector<double>(64, 1.0), 8, /*small_ends=*/true);
  // 64 samples of size 1 on eight groups, two of them with a head start of 6.
  for (const auto& group : {groups.front(), groups.back()}) {
    EXPECT_GE(group.size(), 3);
    EXPECT_LE(group.size(), 4);
  }
  for (size_t i = 1; i + 1 < groups.size(); ++i) EXPECT_GE(groups[i].size(), 9);
}

TEST(SampleOrderTest, SourceFirstThenTargetThenIndex) {
  EXPECT_THAT(OrderByLength(std::vector<SampleTokens>{{2, 1, 1}, {1, 9, 9}, {1, 3, 3}, {1, 3, 3}}),
              ElementsAre(2, 3, 1, 0));
}

// All ways to cut `samples` consecutive samples, the smallest sum within the bound.
double BruteForce(int samples, double bound, const WindowCost& cost) {
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t cuts = 0; cuts < 1u << (samples - 1); ++cuts) {
    double sum = 0;
    int first = 0;
    for (int last = 0; last < samples; ++last) {
      if (last + 1 < samples && (cuts >> last & 1) == 0) continue;
      const double time = cost(first, last);
      sum += time <= bound ? time : std::numeric_limits<double>::infinity();
      first = last + 1;
    }
    best = std::min(best, sum);
  }
  return best;
}

TEST(ContiguousPartitionTest, EqualsBruteForceForEveryBound) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> lengths;
    for (int i = 0; i < 9; ++i) lengths.push_back(1 + random() % 50);
    std::sort(lengths.begin(), lengths.end());
    const WindowCost cost = [&](int first, int last) {
      return 7 + (last - first + 1) * (lengths[last] + 0.02 * lengths[last] * lengths[last]);
    };
    const WindowTable windows(9, 1e9, cost);
    for (const double bound : CandidateBounds(windows, 12)) {
      const ContiguousPartition partition = PartitionWithinBound(windows, bound);
      ASSERT_FALSE(partition.ends.empty());
      EXPECT_DOUBLE_EQ(partition.sum, BruteForce(9, bound, cost));
      EXPECT_LE(partition.largest, bound);
      EXPECT_EQ(partition.ends.back(), 9);
    }
  }
}

TEST(ContiguousPartitionTest, ABoundThatASampleAloneBreaksHasNoPartition) {
  // Sample 1 takes 50, the others nothing; each further sample of a window takes 1.
  const WindowCost cost = [](int first, int last) {
    return last - first + (first <= 1 && last >= 1 ? 50.0 : 0.0);
  };
  const WindowTable windows(3, 100, cost);
  EXPECT_TRUE(PartitionWithinBound(windows, 49).ends.empty());
  EXPECT_THAT(PartitionWithinBound(windows, 50).ends, ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace penstock::core
