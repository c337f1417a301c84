#include "worker/profile/fit.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

// Rectangles of a decoder-only model, or with sources of half and twice the length.
std::vector<CostPoint> PointsOf(const MeasuredTime& time, bool with_source = false) {
  std::vector<CostPoint> points;
  for (const double rows : {1.0, 4.0, 16.0}) {
    for (const double length : {16.0, 64.0, 256.0, 1024.0}) {
      for (const double source :
           with_source ? std::vector<double>{length / 2, 2 * length} : std::vector<double>{0}) {
        const TokenFigures tokens = {rows * source, rows * length, rows * source * source,
                                     rows * length * length, rows * source * length};
        points.push_back({tokens, time(tokens)});
      }
    }
  }
  return points;
}

void ExpectFindsAgain(const MeasuredTime& time, bool with_source = false) {
  const std::vector<CostPoint> points = PointsOf(time, with_source);
  const MeasuredTime fitted = FitTime(points);
  for (const CostPoint& point : points) {
    EXPECT_NEAR(fitted(point.tokens) / point.ns, 1, 1e-6) << point.tokens.target;
  }
}

TEST(FitTime, FindsTheFormulaThatMadeThePoints) {
  ExpectFindsAgain({.fixed_ns = 1e5, .target_token_ns = 4000, .target_square_ns = 3.5});
  ExpectFindsAgain({.target_token_ns = 250, .target_square_ns = 0.1});
  ExpectFindsAgain({.fixed_ns = 2e4, .target_token_ns = 900});
  ExpectFindsAgain(
      {.fixed_ns = 5e3, .target_token_ns = 120, .target_square_ns = 0.5, .half_efficiency_tokens = 256});
}

TEST(FitTime, FindsTheTermsOfADecoderThatSeesASource) {
  const MeasuredTime time = {.fixed_ns = 1e4,
                             .target_token_ns = 900,
                             .target_square_ns = 0.5,
                             .cross_ns = 0.25,
                             .source_token_ns = 120,
                             .source_square_ns = 0,
                             .half_efficiency_tokens = 64};
  ExpectFindsAgain(time, /*with_source=*/true);
  const MeasuredTime fitted = FitTime(PointsOf(time, /*with_source=*/true));
  EXPECT_NEAR(fitted.cross_ns, 0.25, 1e-3);
  EXPECT_NEAR(fitted.source_token_ns, 120, 1);
}

TEST(FitTime, TellsWhatPackedRowsTakeFromWhatTheirTokensDo) {
  const MeasuredTime time = {
      .fixed_ns = 4e4, .target_token_ns = 900, .target_square_ns = 0.5, .packed_row_ns = 2.5e4};
  std::vector<CostPoint> points = PointsOf(time);
  for (const double length : {4.0, 16.0, 64.0}) {
    const TokenFigures tokens = {
        .target = 16 * length, .target_square = 16 * length * length, .packed_rows = 16};
    points.push_back({tokens, time(tokens)});
  }
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted.packed_row_ns, 2.5e4, 1);
  EXPECT_NEAR(fitted.target_token_ns, 900, 1e-3);
  EXPECT_EQ(FitTime(PointsOf(time)).packed_row_ns, 0);
}

// Of context ranks: rows of 1,024 tokens and more, each over two or four ranks.
TEST(FitTime, FindsTheFormulaOfWholeRowsAndSharesInBoth) {
  const MeasuredTime time = {
      .fixed_ns = 4e4, .target_token_ns = 900, .target_square_ns = 0.5, .packed_row_ns = 6e4};
  std::vector<CostPoint> points = PointsOf(time);
  for (const double ranks : {2.0, 4.0}) {
    for (const double length : {256.0, 1024.0, 4096.0}) {
      const TokenFigures share = {
          .target = 4 * length / ranks, .target_square = 4 * length * length / ranks, .packed_rows = 4};
      points.push_back({share, time(share)});
    }
  }
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted.fixed_ns, 4e4, 1);
  EXPECT_NEAR(fitted.target_square_ns, 0.5, 1e-6);
  EXPECT_NEAR(fitted.packed_row_ns, 6e4, 1);
}

// A share of four rows of so many tokens, each over so many context ranks.
TokenFigures ShareOf(double length, double ranks) {
  return {.target = 4 * length / ranks,
          .target_square = 4 * length * length / ranks,
          .packed_rows = 4,
          .divided_rows = 4};
}

TEST(FitTime, TellsWhatDividedRowsTakeFromWhatPackedOnesTake) {
  const MeasuredTime time = {.fixed_ns = 4e4,
                             .target_token_ns = 900,
                             .target_square_ns = 0.5,
                             .packed_row_ns = 6e4,
                             .divided_row_ns = 1.5e5};
  std::vector<CostPoint> points = PointsOf(time);
  for (const double length : {16.0, 128.0, 512.0}) {
    TokenFigures whole = ShareOf(length, 1);
    whole.divided_rows = 0;
    points.push_back({whole, time(whole)});
  }
  for (const double ranks : {2.0, 4.0}) {
    for (const double length : {64.0, 256.0, 1024.0}) {
      const TokenFigures share = ShareOf(length, ranks);
      points.push_back({share, time(share)});
    }
  }
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted.divided_row_ns, 1.5e5, 10);
  EXPECT_NEAR(fitted.packed_row_ns, 6e4, 10);
  EXPECT_NEAR(fitted.target_token_ns, 900, 0.1);
}

// Shares that are faster than whole rows of their tokens: noise, for nothing is gained by dividing.
TEST(FitTime, DividedRowsNeverGiveTimeBack) {
  const MeasuredTime time = {.fixed_ns = 4e4, .target_token_ns = 900, .target_square_ns = 0.5};
  std::vector<CostPoint> points = PointsOf(time);
  for (const double length : {64.0, 256.0, 1024.0}) {
    const TokenFigures share = ShareOf(length, 2);
    points.push_back({share, time(share) - 5e3 * share.divided_rows});
  }
  EXPECT_EQ(FitTime(points).divided_row_ns, 0);
}

TEST(FitTime, TellsWhatACallTakesFromWhatItsRowsDo) {
  const MeasuredTime time = {.fixed_ns = 4e4,
                             .target_token_ns = 900,
                             .target_square_ns = 3,
                             .packed_row_ns = 2.5e4,
                             .target_call_square_ns = 1.5};
  std::vector<CostPoint> points;
  for (const double length : {16.0, 64.0, 256.0, 1024.0}) {
    for (const double rows : {1.0, 4.0, 16.0}) {
      for (const bool packed : {false, true}) {
        const double square = rows * length * length;
        const TokenFigures tokens = {.target = rows * length,
                                     .target_square = square,
                                     .packed_rows = packed ? rows : 0,
                                     .target_call_square = packed ? square : length * length};
        points.push_back({tokens, time(tokens)});
      }
    }
  }
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted.target_call_square_ns, 1.5, 1e-6);
  EXPECT_NEAR(fitted.target_square_ns, 3, 1e-6);
  EXPECT_NEAR(fitted.packed_row_ns, 2.5e4, 1);
}

TEST(FitTime, IsNotLedAstrayByAFewShapesThatWereDisturbed) {
  const MeasuredTime time = {.fixed_ns = 4e4, .target_token_ns = 900, .target_square_ns = 0.5};
  std::vector<CostPoint> points = PointsOf(time);
  points[2].ns *= 2;
  points[7].ns *= 1.6;
  const MeasuredTime fitted = FitTime(points);
  for (const CostPoint& point : PointsOf(time))
    EXPECT_NEAR(fitted(point.tokens) / point.ns, 1, 0.02) << point.tokens.target;
}

TEST(FitTime, WithoutSquaresLeavesThatTermOut) {
  std::vector<CostPoint> points = PointsOf({.fixed_ns = 1000, .target_token_ns = 30});
  for (CostPoint& point : points) point.tokens.target_square = 0;
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted.fixed_ns, 1000, 1e-3);
  EXPECT_NEAR(fitted.target_token_ns, 30, 1e-6);
  EXPECT_EQ(fitted.target_square_ns, 0);
}

TEST(FitTime, NeverGivesNegativeCoefficients) {
  // Larger micro-batches that are cheaper than any non-negative formula allows.
  const auto point = [](double tokens, double ns) {
    return CostPoint{{.target = tokens, .target_square = tokens * tokens}, ns};
  };
  const MeasuredTime fitted = FitTime({point(10, 500), point(100, 400), point(1000, 300)});
  EXPECT_GE(fitted.fixed_ns, 0);
  EXPECT_GE(fitted.target_token_ns, 0);
  EXPECT_GE(fitted.target_square_ns, 0);
  EXPECT_GT(fitted({.target = 100, .target_square = 10'000}), 0);
}

TEST(FitTime, CountsSmallAndLargePointsTheSame) {
  std::vector<CostPoint> points =
      PointsOf({.fixed_ns = 1000, .target_token_ns = 30, .target_square_ns = 0.01});
  points.back().ns *= 1.2;
  const MeasuredTime fitted = FitTime(points);
  EXPECT_NEAR(fitted(points.front().tokens) / points.front().ns, 1, 0.1);
}

TEST(FitTime, OfNothingIsNothing) {
  const MeasuredTime fitted = FitTime({});
  EXPECT_EQ(fitted.fixed_ns + fitted.target_token_ns + fitted.target_square_ns, 0);
}

}  // namespace
}  // namespace penstock::worker
