// Orders in which neighbours are alike.
#include "planner/core/partition/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "planner/core/partition/hilbert_curve.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;

std::vector<PathPoint> RandomPoints(int count, int extent, std::mt19937* random) {
  std::vector<PathPoint> points(count);
  for (PathPoint& point : points) {
    point = {static_cast<double>((*random)() % extent), static_cast<double>((*random)() % extent)};
  }
  return points;
}

bool IsPermutation(std::vector<uint32_t> order) {
  std::sort(order.begin(), order.end());
  for (uint32_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

// The shortest of all paths, by dynamic programming over sets (Held and Karp 1962).
double ShortestLength(const std::vector<PathPoint>& points) {
  const size_t count = points.size();
  std::vector<std::vector<double>> best(size_t{1} << count,
                                        std::vector<double>(count, std::numeric_limits<double>::infinity()));
  for (size_t i = 0; i < count; ++i) best[size_t{1} << i][i] = 0;
  for (size_t set = 1; set < best.size(); ++set) {
    for (size_t last = 0; last < count; ++last) {
      for (size_t next = 0; next < count; ++next) {
        if ((set >> next & 1) != 0) continue;
        const double step =
            std::abs(points[last].x - points[next].x) + std::abs(points[last].y - points[next].y);
        double& longer = best[set | size_t{1} << next][next];
        longer = std::min(longer, best[set][last] + step);
      }
    }
  }
  return *std::min_element(best.back().begin(), best.back().end());
}

TEST(HilbertCurveTest, NeighboursOnTheCurveAreNeighboursInTheSquare) {
  // A corner of the square is filled first, so that its cells have the first places.
  constexpr uint32_t kSide = 32;
  std::vector<std::pair<uint32_t, uint32_t>> cells(size_t{kSide} * kSide, {~0U, ~0U});
  for (uint32_t x = 0; x < kSide; ++x) {
    for (uint32_t y = 0; y < kSide; ++y) {
      const uint32_t place = HilbertPlace(x, y);
      ASSERT_LT(place, cells.size());
      cells[place] = {x, y};
    }
  }
  for (size_t i = 1; i < cells.size(); ++i) {
    const int dx = static_cast<int>(cells[i].first) - static_cast<int>(cells[i - 1].first);
    const int dy = static_cast<int>(cells[i].second) - static_cast<int>(cells[i - 1].second);
    EXPECT_EQ(std::abs(dx) + std::abs(dy), 1);
  }
}

TEST(SampleOrderTest, OnALineTheOrderIsByLength) {
  const std::vector<PathPoint> points = {{7, 5}, {7, 2}, {7, 9}, {7, 2}};
  EXPECT_THAT(AlikeOrder(points), ElementsAre(1, 3, 0, 2));
}

TEST(SampleOrderTest, InThePlaneTheOrderHoldsEverySampleOnce) {
  std::mt19937 random(1);
  for (const int count : {1, 2, 3, 4, 5, 17, 300}) {
    for (const int extent : {1, 2, 10, 1000}) {
      const std::vector<uint32_t> order = AlikeOrder(RandomPoints(count, extent, &random));
      EXPECT_EQ(order.size(), count);
      EXPECT_TRUE(IsPermutation(order));
    }
  }
}

TEST(SampleOrderTest, LengthsOutsideOfTheProfileAreCountedInTokens) {
  const auto time = [](const TokenSums& sums) {
    return sums.source > 0 && sums.target > 0 ? 1.0 : std::numeric_limits<double>::infinity();
  };
  const std::vector<PathPoint> points = SampleCosts(time, std::vector<SampleTokens>{{3, 4, 4}, {5, 6, 6}});
  EXPECT_EQ(points[1].x, 5);
  EXPECT_EQ(points[1].y, 6);
}

TEST(ShortPathTest, IsNearTheShortestOfAll) {
  std::mt19937 random(2);
  double found = 0;
  double shortest = 0;
  for (int round = 0; round < 60; ++round) {
    const std::vector<PathPoint> points = RandomPoints(10, 100, &random);
    const double length = PathLength(points, ShortPath(points));
    const double best = ShortestLength(points);
    EXPECT_GE(length, best - 1e-9);
    found += length;
    shortest += best;
  }
  EXPECT_LT(found, 1.06 * shortest);
}

TEST(ShortPathTest, IsClearlyShorterThanTheCurveItBeganAs) {
  std::mt19937 random(3);
  for (const int count : {200, 3000}) {
    const std::vector<PathPoint> points = RandomPoints(count, 100000, &random);
    EXPECT_LT(PathLength(points, ShortPath(points)), 0.87 * PathLength(points, HilbertOrder(points)));
  }
}

TEST(ShortPathTest, PointsAtOnePlaceStayTogetherInOrderOfIndex) {
  EXPECT_THAT(ShortPath(std::vector<PathPoint>{{9, 9}, {0, 0}, {5, 5}, {0, 0}, {9, 9}, {5, 5}}),
              ElementsAre(1, 3, 2, 5, 0, 4));
}

TEST(ShortPathTest, BeginsAtTheEndNearerToTheOrigin) {
  EXPECT_THAT(ShortPath(std::vector<PathPoint>{{9, 8}, {1, 1}, {5, 4}, {2, 2}}), ElementsAre(1, 3, 2, 0));
}

}  // namespace
}  // namespace penstock::core
