#include "planner/core/calibrate/measured_noise.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/median/weighted_median.h"
#include "planner/core/calibrate/foretold_pass.h"

namespace penstock::core {
namespace {

// Of a normal distribution the median distance from the middle is one in so many of the standard deviation.
constexpr double kDeviationOfMedian = 1.4826;
// Less than this has no plan chosen otherwise; once there was more, less than half of it.
constexpr double kClearlyNoisy = 0.02;
constexpr double kStillNoisy = 0.01;
// Other plans for a value that differs by less are other plans for nothing.
constexpr double kMuchTheSame = 0.25;
constexpr double kMostNoise = 1;
constexpr size_t kFewestDistances = 32;

// Passes of a rank in an iteration that have what is not noise in common.
using Alike = std::tuple<int, int, int, MeasuredKind>;

struct LogRatio {
  double value = 0;
  double foretold_ns = 0;
};

std::map<Alike, std::vector<LogRatio>> LogRatios(const CostModel& costs,
                                                 absl::Span<const MeasuredPass> passes) {
  std::set<std::tuple<int, int, int>> split;
  for (const MeasuredPass& pass : passes) {
    if (pass.kind == MeasuredKind::kBackwardWeight) split.insert({pass.iteration, pass.rank, pass.stage});
  }
  std::map<Alike, std::vector<LogRatio>> ratios;
  for (const MeasuredPass& pass : passes) {
    if (pass.rank < 0) continue;
    if (pass.kind == MeasuredKind::kBackward && split.contains({pass.iteration, pass.rank, pass.stage}))
      continue;
    const double foretold = ForetoldNs(costs, pass);
    if (foretold <= 0) continue;
    ratios[{pass.iteration, pass.rank, pass.stage, pass.kind}].push_back(
        {std::log(std::max(pass.duration_ns, 1.0) / foretold), foretold});
  }
  return ratios;
}

// Of each from the one before it that is alike, as wide as of one from the true value: whatever they have in
// common, and whatever changes slowly, is in both.
std::vector<WeightedValue> Distances(const std::map<Alike, std::vector<LogRatio>>& ratios) {
  std::vector<WeightedValue> distances;
  for (const auto& [alike, all] : ratios) {
    for (size_t i = 1; i < all.size(); ++i) {
      distances.push_back({std::abs(all[i].value - all[i - 1].value) / std::numbers::sqrt2,
                           all[i].foretold_ns + all[i - 1].foretold_ns});
    }
  }
  return distances;
}

}  // namespace

std::optional<double> MeasuredNoise(const CostModel& costs, absl::Span<const MeasuredPass> passes) {
  std::vector<WeightedValue> distances = Distances(LogRatios(costs, passes));
  if (distances.size() < kFewestDistances) return std::nullopt;
  return std::min(kDeviationOfMedian * WeightedMedian(std::move(distances)), kMostNoise);
}

double SteadyNoise(double noise, double before) {
  if (noise < (before > 0 ? kStillNoisy : kClearlyNoisy)) return 0;
  return before > 0 && std::abs(noise / before - 1) < kMuchTheSame ? before : noise;
}

}  // namespace penstock::core
