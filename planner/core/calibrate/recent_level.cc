#include "planner/core/calibrate/recent_level.h"

#include <cmath>
#include <utility>

#include "common/least_squares/least_squares.h"
#include "common/median/weighted_median.h"

namespace penstock::core {
namespace {

// Relative; iterations that are no further from the median count whole.
constexpr double kNear = 0.02;

double WeightedMean(absl::Span<const double> values, absl::Span<const double> weights) {
  double sum = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += weights[i] * values[i];
    all += weights[i];
  }
  return sum / all;
}

}  // namespace

std::vector<double> RecencyWeights(size_t iterations) {
  std::vector<double> weights(iterations);
  for (size_t i = 0; i < iterations; ++i)
    weights[i] = std::exp2(-static_cast<double>(iterations - 1 - i) / kHalfLifeIterations);
  return weights;
}

double RecentLevel(absl::Span<const double> measured_over_foretold) {
  if (measured_over_foretold.empty()) return 1;
  const std::vector<double> recency = RecencyWeights(measured_over_foretold.size());
  std::vector<WeightedValue> ratios;
  for (size_t i = 0; i < recency.size(); ++i) ratios.push_back({measured_over_foretold[i], recency[i]});
  const double middle = WeightedMedian(std::move(ratios));
  std::vector<double> distances;
  for (const double ratio : measured_over_foretold) distances.push_back(std::abs(ratio - middle));
  std::vector<double> weights = HuberWeights(distances, kNear * middle);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] *= recency[i];
  return WeightedMean(measured_over_foretold, weights);
}

double RecentError(absl::Span<const double> measured_over_foretold) {
  if (measured_over_foretold.empty()) return 0;
  std::vector<double> errors;
  for (const double ratio : measured_over_foretold) errors.push_back(std::abs(1 / ratio - 1));
  return WeightedMean(errors, RecencyWeights(errors.size()));
}

}  // namespace penstock::core
