// Cutting batches into micro-batches, against brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "planner/core/model/micro_batch.h"
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

// What the tree of first_fit.h must equal.
Groups SlowFirstFit(const std::vector<SampleTokens>& samples, RowLengths row) {
  Groups rows;
  std::vector<SampleTokens> used;
  for (uint32_t i = 0; i < samples.size(); ++i) {
    size_t r = 0;
    while (r < rows.size() && (static_cast<int>(used[r].source + samples[i].source) > row.source ||
                               static_cast<int>(used[r].target + samples[i].target) > row.target)) {
      ++r;
    }
    if (r == rows.size()) {
      rows.emplace_back();
      used.emplace_back();
    }
    rows[r].push_back(i);
    used[r].source += samples[i].source;
    used[r].target += samples[i].target;
  }
  return rows;
}

std::vector<SampleTokens> RandomSamples(int count, uint32_t longest, std::mt19937* random) {
  std::vector<SampleTokens> samples(count);
  for (SampleTokens& sample : samples) {
    sample.source = (*random)() % 4 == 0 ? 0 : (*random)() % longest + 1;
    sample.target = (*random)() % longest + 1;
    sample.loss = sample.target;
  }
  return samples;
}

TEST(GroupsTest, RowsAreFilledFirstFitInOrderOfArrival) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::vector<SampleTokens> samples = RandomSamples(1 + random() % 90, 50, &random);
    const RowLengths row = {50 + static_cast<int32_t>(random() % 100),
                            50 + static_cast<int32_t>(random() % 100)};
    EXPECT_EQ(FirstFitRows(samples, row), SlowFirstFit(samples, row));
  }
}

TEST(GroupsTest, RowsLaidOutOneAfterAnotherComeOutTheSame) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const std::vector<SampleTokens> samples = RandomSamples(1 + random() % 90, 50, &random);
    const RowLengths row = {50 + static_cast<int32_t>(random() % 100),
                            50 + static_cast<int32_t>(random() % 100)};
    const Groups rows = FirstFitRows(samples, row);
    const Groups joined = Join(rows, static_cast<int>(rows.size()));
    ASSERT_EQ(joined.size(), 1);
    Groups again;
    size_t begin = 0;
    ForEachRow(joined[0], samples, row, [&](size_t end) {
      again.emplace_back(joined[0].begin() + begin, joined[0].begin() + end);
      begin = end;
    });
    EXPECT_EQ(again, rows);
  }
}

TEST(GroupsTest, ASampleLargerThanTheCapIsAlone) {
  EXPECT_THAT(FirstFitDecreasing(std::vector<double>{2, 9, 0, 5}, 6),
              ElementsAre(ElementsAre(1), ElementsAre(3, 2), ElementsAre(0)));
}

TEST(GroupsTest, ConcatenatedRowsCostWhatTheirRectangleCosts) {
  const std::vector<SampleTokens> samples = {{3, 4, 4}, {0, 6, 5}, {5, 1, 1}};
  const std::vector<uint32_t> all = {0, 1, 2};
  const TokenSums sums = SumsOf(all, samples, Layout::kConcatenated, {8, 10});
  EXPECT_EQ(sums.rows, 2);
  EXPECT_EQ(sums.source, 16);
  EXPECT_EQ(sums.target, 20);
  EXPECT_EQ(sums.target_square, 200);
  EXPECT_EQ(sums.cross, 160);
  EXPECT_EQ(sums.loss, 10);
}

TEST(GroupsTest, JoinLeavesTheRestInTheLastGroup) {
  EXPECT_THAT(Join({{4, 1}, {2}, {0}}, 2), ElementsAre(ElementsAre(4, 1, 2), ElementsAre(0)));
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
