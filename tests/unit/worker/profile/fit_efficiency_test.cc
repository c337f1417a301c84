#include "worker/profile/fit_efficiency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

namespace penstock::worker {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenFigures Rectangle(double rows, double source, double target) {
  return {.source = rows * source,
          .target = rows * target,
          .source_square = rows * source * source,
          .target_square = rows * target * target,
          .cross = rows * source * target,
          .source_call_square = source * source,
          .target_call_square = target * target};
}

TokenFigures PackedRows(double rows, double source, double target) {
  TokenFigures figures = Rectangle(rows, source, target);
  figures.packed_rows = rows;
  figures.source_call_square = figures.source_square;
  figures.target_call_square = figures.target_square;
  return figures;
}

// What profiles of a model of 512 tokens are measured with; `source`: of each target token.
std::vector<CostPoint> Shapes(const MeasuredTime& time, const std::vector<double>& source) {
  std::vector<CostPoint> points;
  for (const double length : {23.0, 71.0, 263.0, 503.0}) {
    for (const double share : source) {
      for (const double rows : {1.0, 4.0, 16.0}) points.push_back({Rectangle(rows, share * length, length)});
      points.push_back({PackedRows(4, share * length / 2, length / 2)});
      if (length < 503) points.push_back({PackedRows(16, share * length, length)});
    }
  }
  for (CostPoint& point : points) point.ns = time(point.tokens);
  return points;
}
std::vector<CostPoint> Shapes(const MeasuredTime& time) { return Shapes(time, {0}); }

// Each is off by so much, in the mean of its square.
std::vector<CostPoint> WithNoise(std::vector<CostPoint> points, double noise, uint64_t seed) {
  std::mt19937_64 engine(seed);
  // Of a sum of twelve of them.
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53 - 0.5; };
  for (CostPoint& point : points) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    point.ns *= std::exp(noise * sum);
  }
  return points;
}

double MeanError(const MeasuredTime& fitted, const std::vector<CostPoint>& points) {
  double sum = 0;
  for (const CostPoint& point : points) sum += std::abs(fitted(point.tokens) / point.ns - 1);
  return sum / static_cast<double>(points.size());
}

// A token takes a third longer where caches are full.
const MeasuredTime kStep = {.fixed_ns = 4e4,
                            .target_token_ns = 900,
                            .target_square_ns = 0.5,
                            .packed_row_ns = 1e4,
                            .efficiency = {{1500, 1}, {3000, 1.33}}};

TEST(EfficiencyKnots, AreWhatWasMeasuredByFours) {
  EXPECT_THAT(EfficiencyKnots(Shapes(kStep)), ElementsAre(126, 503, 2012, 8048));
}

TEST(EfficiencyKnots, AreNoneOfFewPointsOrOnesOfOneSize) {
  std::vector<CostPoint> points = Shapes(kStep);
  points.resize(13);
  EXPECT_THAT(EfficiencyKnots(points), IsEmpty());
  EXPECT_THAT(EfficiencyKnots(std::vector<CostPoint>(30, points[3])), IsEmpty());
  EXPECT_THAT(EfficiencyKnots({}), IsEmpty());
}

TEST(SharesOfKnots, AddUpToOne) {
  EXPECT_THAT(SharesOfKnots({10, 50, 100}, 3), ElementsAre(1, 0, 0));
  EXPECT_THAT(SharesOfKnots({10, 50, 100}, 10), ElementsAre(1, 0, 0));
  EXPECT_THAT(SharesOfKnots({10, 50, 100}, 20), ElementsAre(DoubleEq(0.75), DoubleEq(0.25), 0));
  EXPECT_THAT(SharesOfKnots({10, 50, 100}, 100), ElementsAre(0, 0, 1));
  EXPECT_THAT(SharesOfKnots({10, 50, 100}, 1e6), ElementsAre(0, 0, 1));
}

TEST(FitTime, FindsAStepInEfficiencyAgain) {
  const std::vector<CostPoint> points = Shapes(kStep);
  const MeasuredTime fitted = FitTime(points);
  ASSERT_FALSE(fitted.efficiency.empty());
  EXPECT_EQ(fitted.half_efficiency_tokens, 0);
  // 1 in the middle, and a third more at the end.
  EXPECT_EQ(fitted.TokenFactor(2012), 1);
  EXPECT_NEAR(fitted.TokenFactor(8048) / fitted.TokenFactor(503), 1.33, 0.1);
  EXPECT_NEAR(fitted.target_token_ns * fitted.TokenFactor(503), 900, 50);
  EXPECT_NEAR(fitted.target_token_ns * fitted.TokenFactor(8048), 1200, 50);
  // The step is between two points of the table.
  EXPECT_LT(MeanError(fitted, points), 0.6 * MeanError(FitPlainTime(points), points));
}

TEST(FitTime, FindsATableThatMadeThePoints) {
  MeasuredTime time = kStep;
  time.efficiency = {{126, 1.5}, {503, 0.95}, {2012, 1}, {8048, 1.25}};
  const std::vector<CostPoint> points = Shapes(time);
  const MeasuredTime fitted = FitTime(points);
  ASSERT_EQ(fitted.efficiency.size(), 4U);
  for (const EfficiencyPoint& point : time.efficiency)
    EXPECT_NEAR(fitted.TokenFactor(point.tokens), point.factor, 0.08) << point.tokens;
  EXPECT_LT(MeanError(fitted, points), 0.015);
}

TEST(FitTime, IsNearerToTheTruthByATableUnderNoise) {
  int tables = 0;
  double with = 0, without = 0;
  constexpr int kDraws = 40;
  for (int seed = 0; seed < kDraws; ++seed) {
    const std::vector<CostPoint> points = WithNoise(Shapes(kStep), 0.03, seed);
    const MeasuredTime fitted = FitTime(points);
    tables += fitted.efficiency.empty() ? 0 : 1;
    with += MeanError(fitted, Shapes(kStep)) / kDraws;
    without += MeanError(FitPlainTime(points), Shapes(kStep)) / kDraws;
  }
  EXPECT_GE(tables, kDraws * 3 / 4);
  EXPECT_LT(with, 0.75 * without);
}

TEST(FitTime, SeldomTakesNoiseForATableAndIsNotFarOffThen) {
  MeasuredTime plain = kStep;
  plain.efficiency.clear();
  int tables = 0;
  double with = 0, without = 0;
  constexpr int kDraws = 60;
  for (int seed = 0; seed < kDraws; ++seed) {
    const std::vector<CostPoint> points = WithNoise(Shapes(plain), 0.03, seed);
    const MeasuredTime fitted = FitTime(points);
    tables += fitted.efficiency.empty() ? 0 : 1;
    with += MeanError(fitted, Shapes(plain)) / kDraws;
    without += MeanError(FitPlainTime(points), Shapes(plain)) / kDraws;
  }
  EXPECT_LE(tables, kDraws / 5);
  EXPECT_LT(with, 1.15 * without);
}

TEST(FitTime, OfBothSidesFindsOneTable) {
  const MeasuredTime time = {.fixed_ns = 4e4,
                             .target_token_ns = 900,
                             .target_square_ns = 0.5,
                             .cross_ns = 0.25,
                             .source_token_ns = 200,
                             .efficiency = {{503, 1.2}, {2012, 1}, {8048, 1.3}}};
  const std::vector<CostPoint> points = Shapes(time, {0.25, 1, 4});
  const MeasuredTime fitted = FitTime(points);
  ASSERT_FALSE(fitted.efficiency.empty());
  EXPECT_LT(MeanError(fitted, points), 0.02);
  EXPECT_GT(fitted.source_token_ns, 100);
}

TEST(FitTime, ATableNeverMakesMoreTokensTakeLessTime) {
  // Faster by half from one shape to the next.
  std::vector<CostPoint> points = Shapes(kStep);
  for (CostPoint& point : points) point.ns *= point.tokens.target > 600 ? 0.2 : 1;
  const MeasuredTime fitted = FitTime(points);
  double before = 0;
  for (double tokens = 16; tokens < 20000; tokens *= 1.01) {
    const double time = tokens * fitted.TokenFactor(tokens);
    EXPECT_GE(time, before);
    before = time;
  }
}

TEST(FitTime, OfFewPointsHasNoTable) {
  std::vector<CostPoint> points = Shapes(kStep);
  points.resize(12);
  EXPECT_THAT(FitTime(points).efficiency, IsEmpty());
}

}  // namespace
}  // namespace penstock::worker
