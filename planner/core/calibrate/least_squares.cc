#include "planner/core/calibrate/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/least_squares/least_squares.h"
#include "common/median/median.h"

namespace penstock::core {
namespace {

constexpr double kLeastFactor = 0.02;
constexpr double kMostFactor = 50;
// Factors are expected this far from the usual ratio (a standard deviation, relative to that ratio): see
// SetRidge.
constexpr double kFactorSpread = 0.5;
constexpr double kLeastRidge = 1e-6;
constexpr double kMostRidge = 0.0025;
// The standard deviation of a normal distribution by the median of absolute values.
constexpr double kDeviationPerMedian = 1.4826;
// Of exact factors rounding is all that is left.
constexpr double kRoundedOff = 1e-9;
constexpr int kRounds = 10;

double Foreseen(const FitRow& row) {
  double sum = 0;
  for (const double part : row.parts) sum += part;
  return sum;
}

// The rows relative to what they foresee: shares of the parts, the ratio of the measurement, and how much
// each counts.
class RelativeRows {
 public:
  RelativeRows(absl::Span<const FitRow> rows, size_t columns) : columns_(columns) {
    double total = 0;
    for (const FitRow& row : rows) total += Foreseen(row);
    for (const FitRow& row : rows) {
      const double foreseen = Foreseen(row);
      for (const double part : row.parts) shares_.push_back(part / foreseen);
      ratios_.push_back(row.measured / foreseen);
      weights_.push_back(foreseen / total);
    }
    std::vector<double> ratios = ratios_;
    usual_ = UpperMedian(ratios);
    outlier_.assign(ratios_.size(), 1);
  }

  double usual() const { return usual_; }

  std::vector<double> Fit() const {
    NormalEquations equations(columns_, ridge_);
    equations.right.assign(columns_, ridge_ * usual_);
    for (size_t row = 0; row < ratios_.size(); ++row) {
      equations.Add(absl::MakeConstSpan(shares_).subspan(row * columns_, columns_), ratios_[row],
                    weights_[row] * outlier_[row]);
    }
    // The ridge makes it one that has a solution.
    return SolvePositiveDefinite(std::move(equations.matrix), std::move(equations.right), 0)
        .value_or(std::vector<double>(columns_, usual_));
  }

  // By how far they are from the fit.
  void WeighOutliers(absl::Span<const double> factors) {
    std::vector<double> residuals;
    for (size_t row = 0; row < ratios_.size(); ++row) {
      double fitted = 0;
      for (size_t i = 0; i < columns_; ++i) fitted += factors[i] * share(row, i);
      residuals.push_back(std::abs(ratios_[row] - fitted));
    }
    outlier_ = HuberWeights(residuals, kRoundedOff);
    SetRidge(kDeviationPerMedian * UpperMedian(residuals));
  }

 private:
  double share(size_t row, size_t column) const { return shares_[row * columns_ + column]; }

  // The most likely factors have a penalty of (noise / expected spread)^2 for each row's worth of weight:
  // many rows, or rows without noise, are believed.
  void SetRidge(double deviation) {
    const double relative = deviation / (kFactorSpread * usual_);
    ridge_ = std::clamp(relative * relative / static_cast<double>(ratios_.size()), kLeastRidge, kMostRidge);
  }

  size_t columns_;
  double ridge_ = kMostRidge;
  std::vector<double> shares_;
  std::vector<double> ratios_;
  std::vector<double> weights_;
  std::vector<double> outlier_;
  double usual_ = 1;
};

}  // namespace

std::vector<double> FitFactors(absl::Span<const FitRow> rows, size_t columns) {
  if (rows.empty()) return std::vector<double>(columns, 1.0);
  RelativeRows relative(rows, columns);
  std::vector<double> factors = relative.Fit();
  for (int round = 0; round < kRounds; ++round) {
    relative.WeighOutliers(factors);
    factors = relative.Fit();
  }
  for (double& factor : factors)
    factor = std::clamp(factor, kLeastFactor * relative.usual(), kMostFactor * relative.usual());
  return factors;
}

}  // namespace penstock::core
