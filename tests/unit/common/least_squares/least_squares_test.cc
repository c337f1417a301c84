#include "common/least_squares/least_squares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(SolvePositiveDefinite, FindsWhatMadeTheRightSide) {
  // {{4, 2}, {2, 3}} * {1, -2}.
  const auto solution = SolvePositiveDefinite({4, 2, 2, 3}, {0, -4}, 0);
  ASSERT_TRUE(solution.has_value());
  EXPECT_THAT(*solution, ElementsAre(DoubleNear(1, 1e-12), DoubleNear(-2, 1e-12)));
}

TEST(SolvePositiveDefinite, SaysThatColumnsAreDependent) {
  EXPECT_FALSE(SolvePositiveDefinite({1, 1, 1, 1}, {1, 1}, 1e-9).has_value());
  EXPECT_FALSE(SolvePositiveDefinite({0}, {1}, 0).has_value());
}

TEST(SolvePositiveDefinite, OfNothingIsNothing) {
  const auto solution = SolvePositiveDefinite({}, {}, 0);
  ASSERT_TRUE(solution.has_value());
  EXPECT_TRUE(solution->empty());
}

TEST(HuberWeights, WhatIsFarOffCountsLess) {
  EXPECT_THAT(HuberWeights({1, 2, 1, 20, 1}, 1e-9), ElementsAre(1, 1, 1, DoubleNear(0.1, 1e-12), 1));
}

TEST(HuberWeights, NothingThatIsNearCountsLess) {
  EXPECT_THAT(HuberWeights({0, 0, 0}, 0.1), ElementsAre(1, 1, 1));
  EXPECT_THAT(HuberWeights({0, 0.1, 0, 0.4, 0}, 0.1), ElementsAre(1, 1, 1, DoubleNear(0.25, 1e-12), 1));
}

TEST(NormalEquationsTest, AreThoseOfRowsByTheirWeights) {
  NormalEquations equations(2, /*ridge=*/0.5);
  equations.Add({1, 2}, /*value=*/3, /*weight=*/1);
  equations.Add({4, 0}, /*value=*/1, /*weight=*/2);
  EXPECT_THAT(equations.matrix, testing::ElementsAre(33.5, 2, 2, 4.5));
  EXPECT_THAT(equations.right, testing::ElementsAre(11, 6));
}

}  // namespace
}  // namespace penstock
