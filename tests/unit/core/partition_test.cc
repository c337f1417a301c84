// Cutting batches into micro-batches, against brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "planner/core/model/micro_batch.h"
#include "planner/core/partition/contiguous_groups.h"
#include "planner/core/partition/contiguous_partition.h"
#include "planner/core/partition/groups.h"
#include "planner/core/partition/window_sums.h"

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

TEST(GroupsTest, TheFastestGroupGetsMostAndNoneNothing) {
  EXPECT_THAT(BalancedGroups(std::vector<double>{4, 4, 4, 4, 4, 4}, std::vector<double>{2, 1}),
              ElementsAre(ElementsAre(0, 1, 3, 4), ElementsAre(2, 5)));
  EXPECT_THAT(BalancedGroups(std::vector<double>{9, 1}, std::vector<double>{0.01, 1}),
              ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(BalancedGroups(std::vector<double>{9}, std::vector<double>{0.5, 1}),
              ElementsAre(ElementsAre(), ElementsAre(0)));
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

TEST(GroupsTest, AnOrderIsCutWhereItIsSaid) {
  EXPECT_THAT(CutOrder(std::vector<uint32_t>{3, 1, 2, 0}, std::vector<int>{1, 4}),
              ElementsAre(ElementsAre(3), ElementsAre(1, 2, 0)));
}

// The same costs as WindowTable asks for, as a table of all windows.
class Windows {
 public:
  explicit Windows(int samples) : samples_(samples), costs_(static_cast<size_t>(samples) * samples) {}
  double& at(int first, int last) { return costs_[static_cast<size_t>(first) * samples_ + last]; }
  double operator()(int first, int last) const {
    return costs_[static_cast<size_t>(first) * samples_ + last];
  }
  int samples() const { return samples_; }

 private:
  int samples_;
  std::vector<double> costs_;
};

// Costs that rise with every sample added at either end, else anything.
Windows RandomWindows(int samples, std::mt19937* random) {
  Windows windows(samples);
  for (int size = 1; size <= samples; ++size) {
    for (int first = 0; first + size <= samples; ++first) {
      const int last = first + size - 1;
      double cost = 1 + (*random)() % 60;
      if (size > 1) cost = std::max(windows(first + 1, last), windows(first, last - 1)) + (*random)() % 20;
      windows.at(first, last) = cost;
    }
  }
  return windows;
}

// Calls `use(sum, largest, joint)` for each way to cut consecutive samples; `joint`: largest of those with
// several.
template <typename Use>
void ForEachPartition(const Windows& windows, Use use) {
  for (uint32_t cuts = 0; cuts < 1U << (windows.samples() - 1); ++cuts) {
    double sum = 0;
    double largest = 0;
    double joint = 0;
    int first = 0;
    for (int last = 0; last < windows.samples(); ++last) {
      if (last + 1 < windows.samples() && (cuts >> last & 1) == 0) continue;
      sum += windows(first, last);
      largest = std::max(largest, windows(first, last));
      if (first < last) joint = std::max(joint, windows(first, last));
      first = last + 1;
    }
    use(sum, largest, joint);
  }
}

void ExpectAddsUp(const Windows& windows, const ContiguousPartition& partition) {
  double sum = 0;
  double largest = 0;
  int first = 0;
  for (const int end : partition.ends) {
    sum += windows(first, end - 1);
    largest = std::max(largest, windows(first, end - 1));
    first = end;
  }
  EXPECT_EQ(first, windows.samples());
  EXPECT_DOUBLE_EQ(partition.sum, sum);
  EXPECT_EQ(partition.largest, largest);
}

TEST(ContiguousPartitionTest, EqualsBruteForceForEveryBound) {
  std::mt19937 random(5);
  std::vector<double> scratch;
  for (int round = 0; round < 100; ++round) {
    const Windows windows = RandomWindows(1 + static_cast<int>(random() % 10), &random);
    const WindowTable table(windows.samples(), 1e9, windows);
    for (double bound = 5; bound < 300; bound += 1 + random() % 15) {
      double best = std::numeric_limits<double>::infinity();
      ForEachPartition(windows, [&](double sum, double, double joint) {
        if (joint <= bound) best = std::min(best, sum);
      });
      const ContiguousPartition partition = PartitionWithinBound(table, bound, &scratch);
      EXPECT_DOUBLE_EQ(partition.sum, best);
      ExpectAddsUp(windows, partition);
    }
  }
}

TEST(ContiguousPartitionTest, ASampleAboveTheBoundIsAlone) {
  // Every micro-batch takes 10, and one more for each sample; sample 1 takes 50.
  const auto cost = [](int first, int last) {
    return 11.0 + last - first + (first <= 1 && last >= 1 ? 50.0 : 0.0);
  };
  std::vector<double> scratch;
  EXPECT_THAT(PartitionWithinBound(WindowTable(4, 40, cost), 40, &scratch).ends, ElementsAre(1, 2, 4));
}

TEST(ContiguousPartitionTest, ASampleThatCannotBeAMicroBatchHasNoPartition) {
  const auto cost = [](int first, int last) {
    return first <= 1 && last >= 1 ? std::numeric_limits<double>::infinity() : 1.0;
  };
  std::vector<double> scratch;
  EXPECT_TRUE(PartitionWithinBound(WindowTable(3, 40, cost), 40, &scratch).ends.empty());
}

TEST(PartitionSearchTest, FindsTheBestObjectiveOfAllPartitions) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const Windows windows = RandomWindows(1 + static_cast<int>(random() % 10), &random);
    PartitionSearch search;
    search.replicas = 1 + static_cast<int>(random() % 3);
    search.stages = 1 + static_cast<int>(random() % 5);
    search.runs = 1000;
    search.resolution = 1e-9;
    // So that no bound is taken to be too large.
    search.slack = 1e6;
    double best = std::numeric_limits<double>::infinity();
    ForEachPartition(windows, [&](double sum, double largest, double) {
      best = std::min(best, search.Objective(sum, largest));
    });
    const auto found = SearchPartitions(windows.samples(), search, windows);
    ASSERT_FALSE(found.empty());
    for (const ContiguousPartition& partition : found) ExpectAddsUp(windows, partition);
    EXPECT_DOUBLE_EQ(search.Objective(found.front()), best);
  }
}

TEST(PartitionSearchTest, NeedsFewRunsAndIsRightAboutWhatItLeavesOut) {
  std::mt19937 random(7);
  int exact = 0;
  for (int round = 0; round < 300; ++round) {
    const Windows windows = RandomWindows(10, &random);
    PartitionSearch search;
    search.replicas = 1 + static_cast<int>(random() % 3);
    search.stages = 1 + static_cast<int>(random() % 5);
    double best = std::numeric_limits<double>::infinity();
    ForEachPartition(windows, [&](double sum, double largest, double) {
      best = std::min(best, search.Objective(sum, largest));
    });
    const auto found = SearchPartitions(10, search, windows);
    ASSERT_FALSE(found.empty());
    const double objective = search.Objective(found.front());
    exact += objective <= best * (1 + search.resolution) ? 1 : 0;
    EXPECT_LE(objective, 1.1 * best);
    double alone = 0;
    for (int i = 0; i < 10; ++i) alone = std::max(alone, windows(i, i));
    bool small = false;
    for (size_t i = 0; i < found.size(); ++i) {
      ExpectAddsUp(windows, found[i]);
      for (size_t j = 0; j < i; ++j) EXPECT_NE(found[i].ends, found[j].ends);
      // First those within the slack, best first; then those where the largest sample is alone.
      const double other = search.Objective(found[i]);
      small = small || other > objective * (1 + search.slack) ||
              (i > 0 && other < search.Objective(found[i - 1]));
      if (small) {
        EXPECT_EQ(found[i].largest, alone);
      }
    }
  }
  EXPECT_GE(exact, 290);
}

TEST(PartitionSearchTest, ASampleThatCannotBeAMicroBatchLeavesNothing) {
  const auto cost = [](int first, int last) {
    return first <= 1 && last >= 1 ? std::numeric_limits<double>::infinity() : 1.0;
  };
  EXPECT_TRUE(SearchPartitions(3, PartitionSearch(), cost).empty());
}

TEST(WindowSumsTest, EqualTheSumsOfTheWindowsSamples) {
  std::mt19937 random(8);
  const std::vector<SampleTokens> samples = RandomSamples(40, 90, &random);
  std::vector<uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const PackedWindows packed(order, samples);
  PaddedWindows padded(order, samples);
  for (int last = 0; last < 40; ++last) {
    for (int first = last; first >= 0; --first) {
      const auto window = absl::MakeConstSpan(order).subspan(first, last - first + 1);
      for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
        const TokenSums expected = SumsOf(window, samples, layout);
        const TokenSums sums = layout == Layout::kPacked ? packed(first, last) : padded(first, last);
        EXPECT_EQ(sums.rows, expected.rows);
        EXPECT_EQ(sums.source, expected.source);
        EXPECT_EQ(sums.target, expected.target);
        EXPECT_EQ(sums.source_square, expected.source_square);
        EXPECT_EQ(sums.target_square, expected.target_square);
        EXPECT_EQ(sums.cross, expected.cross);
        EXPECT_EQ(sums.loss, expected.loss);
        EXPECT_EQ(sums.source_length, expected.source_length);
      }
    }
  }
}

// Time of rows, their tokens and their squares.
double TimeOf(const TokenSums& sums) { return 5 + sums.source + 2 * sums.target + 0.01 * sums.target_square; }

TEST(ContiguousGroupsTest, HoldEverySampleOnceWithinTheBoundsOfMemory) {
  std::mt19937 random(9);
  const std::vector<SampleTokens> samples = RandomSamples(60, 90, &random);
  std::vector<uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const auto fits = [](const TokenSums& sums) { return sums.source + sums.target < 400; };
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    const auto found = ContiguousGroups(order, samples, layout, {.replicas = 2, .stages = 3}, TimeOf, fits);
    ASSERT_FALSE(found.empty());
    for (const Groups& groups : found) {
      const Groups joined = Join(groups, static_cast<int>(groups.size()));
      EXPECT_EQ(joined.front(), order);
      for (const auto& group : groups) {
        EXPECT_TRUE(group.size() == 1 || fits(SumsOf(group, samples, layout)));
      }
    }
  }
}

TEST(ContiguousGroupsTest, PackedWindowsTakeNoMoreTimeThanPaddedOnes) {
  std::mt19937 random(10);
  const std::vector<SampleTokens> samples = RandomSamples(60, 90, &random);
  std::vector<uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  const PartitionSearch search = {.replicas = 1, .stages = 4};
  const auto fits = [](const TokenSums&) { return true; };
  const auto objective = [&](Layout layout) {
    double sum = 0;
    double largest = 0;
    const auto found = ContiguousGroups(order, samples, layout, search, TimeOf, fits);
    for (const auto& group : found.front()) {
      const double time = TimeOf(SumsOf(group, samples, layout));
      sum += time;
      largest = std::max(largest, time);
    }
    return search.Objective(sum, largest);
  };
  EXPECT_LT(objective(Layout::kPacked), objective(Layout::kPadded));
}

}  // namespace
}  // namespace penstock::core
