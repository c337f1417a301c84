#include "worker/profile/sum_to_one.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace penstock::worker {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

using Rows = std::vector<std::vector<double>>;

// Of a line near (1, 3), (2, 5.1) and (4, 9): what its terms are over the values.
const Rows kLine = {{1 / 3.0, 1 / 3.0}, {1 / 5.1, 2 / 5.1}, {1 / 9.0, 4 / 9.0}};

TEST(SumToOne, FindsCoefficientsOverTheColumnsThatAreAsked) {
  const SumToOne sums(kLine, {1, 0, 1});
  EXPECT_THAT(*sums.Solve(0b11), ElementsAre(DoubleNear(1, 1e-9), DoubleNear(2, 1e-9)));
  EXPECT_THAT(*SumToOne({{0.25, 9}}, {1}).Solve(0b01), ElementsAre(4, 0));
}

TEST(SumToOne, HasNoSolutionThatIsNegativeOrNotUnique) {
  EXPECT_NE(SumToOne({{1, 1}, {0.5, 2}}, {1, 1}).Solve(0b10), std::nullopt);
  EXPECT_EQ(SumToOne({{1, -1}, {3, 1}}, {1, 1}).Solve(0b11), std::nullopt);
  EXPECT_EQ(SumToOne({{1, 2}, {2, 4}}, {1, 1}).Solve(0b11), std::nullopt);
  EXPECT_EQ(SumToOne({{1, 0}, {2, 0}}, {1, 1}).Solve(0b11), std::nullopt);
}

TEST(SumToOne, LeavesEachRowOutAsAFitWithoutItWould) {
  const SumToOne all(kLine, {1, 1, 1});
  const std::vector<double> left_out = all.LeftOutErrors(0b11);
  ASSERT_EQ(left_out.size(), kLine.size());
  for (size_t row = 0; row < kLine.size(); ++row) {
    std::vector<double> weights(kLine.size(), 1);
    weights[row] = 0;
    const SumToOne others(kLine, weights);
    const auto solution = others.Solve(0b11);
    ASSERT_TRUE(solution.has_value()) << row;
    EXPECT_NEAR(left_out[row], others.Errors(*solution)[row], 1e-9) << row;
  }
}

TEST(SumToOne, HoldsToWhatIsKnownBeforehandWhereRowsSayNothing) {
  SumToOne sums({{0.5, 0}, {0.5, 0}}, {1, 1});
  sums.AddPrior({1, -1}, 0.01);
  EXPECT_THAT(*sums.Solve(0b11), ElementsAre(DoubleNear(2, 1e-9), DoubleNear(2, 1e-9)));
  EXPECT_NEAR(sums.SquaredError({2, 3}), 0.01, 1e-9);
}

}  // namespace
}  // namespace penstock::worker
