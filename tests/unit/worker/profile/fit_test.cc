#include "worker/profile/fit.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

std::vector<CostPoint> PointsOf(const MeasuredTime& time) {
  std::vector<CostPoint> points;
  for (const double rows : {1.0, 4.0, 16.0}) {
    for (const double length : {16.0, 64.0, 256.0, 1024.0}) {
      const double tokens = rows * length;
      const double squares = tokens * length;
      points.push_back({tokens, squares, time(tokens, squares)});
    }
  }
  return points;
}

void ExpectFindsAgain(const MeasuredTime& time) {
  const MeasuredTime fitted = FitTime(PointsOf(time));
  for (const CostPoint& point : PointsOf(time)) {
    EXPECT_NEAR(fitted(point.tokens, point.squares) / point.ns, 1, 1e-6) << point.tokens;
  }
}

TEST(FitTime, FindsTheFormulaThatMadeThePoints) {
  ExpectFindsAgain({1e5, 4000, 3.5, 0});
  ExpectFindsAgain({0, 250, 0.1, 0});
  ExpectFindsAgain({2e4, 900, 0, 0});
  ExpectFindsAgain({5e3, 120, 0.5, 256});
}

TEST(FitTime, WithoutSquaresLeavesThatTermOut) {
  std::vector<CostPoint> points = PointsOf({1000, 30, 0, 0});
  for (CostPoint& point : points) point.squares = 0;
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted.fixed_ns, 1000, 1e-3);
  EXPECT_NEAR(fitted.token_ns, 30, 1e-6);
  EXPECT_EQ(fitted.square_ns, 0);
}

TEST(FitTime, NeverGivesNegativeCoefficients) {
  // Larger micro-batches that are cheaper than any non-negative formula allows.
  const MeasuredTime fitted = FitTime({{10, 100, 500}, {100, 10'000, 400}, {1000, 1'000'000, 300}});
  EXPECT_GE(fitted.fixed_ns, 0);
  EXPECT_GE(fitted.token_ns, 0);
  EXPECT_GE(fitted.square_ns, 0);
  EXPECT_GT(fitted(100, 10'000), 0);
}

TEST(FitTime, CountsSmallAndLargePointsTheSame) {
  std::vector<CostPoint> points = PointsOf({1000, 30, 0.01, 0});
  points.back().ns *= 1.2;
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted(points.front().tokens, points.front().squares) / points.front().ns, 1, 0.1);
}

TEST(FitTime, OfNothingIsNothing) {
  const MeasuredTime fitted = FitTime({});
  EXPECT_EQ(fitted.fixed_ns + fitted.token_ns + fitted.square_ns, 0);
}

}  // namespace
}  // namespace penstock::worker
