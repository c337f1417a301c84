// From when on a rank is called slow, and until when.
#include "planner/core/calibrate/find_slow_ranks.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/slow_passes.h"

namespace penstock::core {
namespace {

// Two replicas of one stage, the second of which takes `factor` times as long.
class FindSlowRanksTest : public testing::Test {
 protected:
  std::vector<SlowRank> Find(double factor, const std::vector<SlowRank>& before = {}) const {
    const std::vector<MeasuredPass> passes =
        PassesWithSlowRank(costs_, /*ranks=*/2, /*of_each=*/20, /*slow=*/1, factor);
    return FindSlowRanks(costs_, PassesOf::kGroups, passes, before, /*peers_alone=*/true);
  }

  const CostModel costs_ = ModelOf(GptJob(1, 2, v1::POLICY_DYNAMIC));
};

TEST_F(FindSlowRanksTest, ARankIsNamedFromEightPerCentOn) {
  EXPECT_TRUE(Find(1.079).empty());
  const std::vector<SlowRank> slow = Find(1.081);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].rank, 1);
  EXPECT_NEAR(slow[0].factor, 1.081, 1e-9);
}

TEST_F(FindSlowRanksTest, ARankThatWasNamedIsForgottenBelowFourPerCent) {
  const std::vector<SlowRank> before = {{1, 1.3}};
  const std::vector<SlowRank> slow = Find(1.041, before);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_NEAR(slow[0].factor, 1.041, 1e-9);
  EXPECT_TRUE(Find(1.039, before).empty());
}

// In between, ranks are as they were: costs do not go back and forth with noise.
TEST_F(FindSlowRanksTest, BetweenTheTwoARankStaysWhatItIs) {
  std::vector<SlowRank> known;
  for (const double factor : {1.07, 1.05, 1.07}) {
    known = Find(factor, known);
    EXPECT_TRUE(known.empty()) << factor;
  }
  known = Find(1.09, known);
  for (const double factor : {1.07, 1.05, 1.07}) {
    known = Find(factor, known);
    EXPECT_EQ(known.size(), 1U) << factor;
  }
  EXPECT_TRUE(Find(1.03, known).empty());
  // It was another one that was slow.
  EXPECT_TRUE(Find(1.07, {{0, 1.3}}).empty());
}

}  // namespace
}  // namespace penstock::core
