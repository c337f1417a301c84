// Shares by room and by speed.
#include "planner/core/strategies/share_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

double SumOf(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double FullestOf(const std::vector<double>& needs, const std::vector<double>& shares) {
  double fullest = 0;
  for (size_t rank = 0; rank < needs.size(); ++rank) fullest = std::max(fullest, needs[rank] + shares[rank]);
  return fullest;
}

TEST(ShareSizesTest, FillTheRoomAboveTheNeedsUpToOneLevel) {
  EXPECT_THAT(LevelShares({5, 3, 1}, 5), ElementsAre(0, 1.5, 3.5));
  EXPECT_THAT(LevelShares({2, 2}, 6), ElementsAre(3, 3));
  EXPECT_THAT(LevelShares({7}, 2), ElementsAre(2));
  EXPECT_THAT(LevelShares({0, 100}, 10), ElementsAre(10, 0));
}

// No move of anything from one rank to another makes the fullest emptier.
TEST(ShareSizesTest, LeaveTheFullestRankAsEmptyAsCanBe) {
  Random random(1);
  for (int test = 0; test < 300; ++test) {
    std::vector<double> needs;
    for (uint32_t rank = 0; rank < random.Range(1, 8); ++rank) needs.push_back(random.Range(0, 100));
    const double total = random.Range(1, 400);
    const std::vector<double> shares = LevelShares(needs, total);
    EXPECT_NEAR(SumOf(shares), total, 1e-9 * total);
    // All could be as full as the fullest one with a share, or it has none and is what it needs.
    const double fullest = FullestOf(needs, shares);
    double room = 0;
    for (const double need : needs) room += std::max(0.0, fullest - need);
    const double most_needed = *std::ranges::max_element(needs);
    EXPECT_TRUE(fullest == most_needed || room <= total * (1 + 1e-9)) << "test " << test;
  }
}

TEST(ShareSizesTest, GoBySpeedAsFarAsThereIsRoom) {
  EXPECT_THAT(SharesBySpeed({1, 0.5, 0.5}, {100, 100, 100}, 8), ElementsAre(4, 2, 2));
  EXPECT_THAT(SharesBySpeed({1, 0.5, 0.5}, {2, 100, 100}, 8), ElementsAre(2, 3, 3));
  EXPECT_THAT(SharesBySpeed({1, 0.5, 0.5}, {2, 1, 100}, 8), ElementsAre(2, 1, 5));
  EXPECT_THAT(SharesBySpeed({1, 1}, {-3, 8}, 8), ElementsAre(0, 8));
  EXPECT_THAT(SharesBySpeed({1, 1}, {3, 4}, 8), IsEmpty());
}

TEST(ShareSizesTest, AreFoundByNoRankOfWhichOneIsLateForNothing) {
  Random random(2);
  for (int test = 0; test < 300; ++test) {
    std::vector<double> speeds, room;
    for (uint32_t rank = 0; rank < random.Range(1, 8); ++rank) {
      speeds.push_back(1 / (0.1 * random.Range(10, 40)));
      room.push_back(random.Range(0, 100));
    }
    const double total = random.Range(1, 200);
    const std::vector<double> shares = SharesBySpeed(speeds, room, total);
    if (shares.empty()) {
      EXPECT_LT(SumOf(room), total);
      continue;
    }
    EXPECT_NEAR(SumOf(shares), total, 1e-9 * total);
    double latest = 0;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      EXPECT_LE(shares[rank], room[rank] + 1e-9);
      latest = std::max(latest, shares[rank] / speeds[rank]);
    }
    // Whoever is earlier has no room for more.
    for (size_t rank = 0; rank < shares.size(); ++rank)
      EXPECT_TRUE(shares[rank] / speeds[rank] >= latest - 1e-9 || shares[rank] >= room[rank] - 1e-9);
  }
}

TEST(ShareSizesTest, AreWholeNumbersOfWhichTheLargestIsAThousand) {
  EXPECT_THAT(WeightsOfShares({0, 1.5, 3.5}), ElementsAre(0, 429, 1000));
  EXPECT_THAT(WeightsOfShares({2e9, 2e9}), ElementsAre(1000, 1000));
}

}  // namespace
}  // namespace penstock::core
