#include "worker/profile/fit.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/least_squares/least_squares.h"
#include "worker/profile/fit_efficiency.h"
#include "worker/profile/form_terms.h"
#include "worker/profile/sum_to_one.h"

namespace penstock::worker {
namespace {

// Terms that are there only where they are worth it: packed rows, calls of target and of source,
// divided rows.
constexpr std::array<unsigned, 3> kOptional = {1U << kPackedRow, 1U << kTargetCall | 1U << kSourceCall,
                                               1U << kDividedRow};
constexpr unsigned kChoices = 1U << kOptional.size();
// Fewer shapes do not tell such a term from what others take.
constexpr size_t kFewestForATerm = 12;
// One term more of twenty shapes takes a twentieth off the error of mere noise.
constexpr double kWorthATerm = 0.9;
// A little better is not enough: without it the form is simpler.
constexpr double kWorthHalfEfficiency = 0.98;
constexpr double kLargestHalfEfficiency = 4096;
// A sum of squared relative errors below which a fit is exact but for rounding.
constexpr double kExact = 1e-16;
// Repeats of one shape differ by so much: no shape is an outlier for less.
constexpr double kLeastOutlier = 0.02;
constexpr int kRounds = 5;

struct Fit {
  std::vector<double> coefficients = std::vector<double>(kFormTerms);
  // Squared relative ones.
  double error = std::numeric_limits<double>::infinity();
};

// Which of the optional terms a subset has: bit i for the i-th.
unsigned ChoiceOf(unsigned mask) {
  unsigned choice = 0;
  for (size_t i = 0; i < kOptional.size(); ++i) choice |= (mask & kOptional[i]) != 0 ? 1U << i : 0;
  return choice;
}

// By ChoiceOf. The best non-negative solution is an unconstrained one over some subset of the columns (Lawson
// and Hanson, "Solving least squares problems", 1974, chapter 23); there are 1023.
std::array<Fit, kChoices> BestOfChoices(const SumToOne& sums) {
  std::array<Fit, kChoices> best;
  for (unsigned mask = 1; mask < 1U << kFormTerms; ++mask) {
    const std::optional<std::vector<double>> solution = sums.Solve(mask);
    if (!solution.has_value()) continue;
    const double error = sums.SquaredError(*solution);
    Fit& of_choice = best[ChoiceOf(mask)];
    if (error < of_choice.error) of_choice = {.coefficients = *solution, .error = error};
  }
  return best;
}

Fit SolveNonNegative(const SumToOne& sums, size_t points) {
  const std::array<Fit, kChoices> fits = BestOfChoices(sums);
  Fit best = fits[0];
  if (points < kFewestForATerm) return best;
  int terms = 0;
  for (unsigned choice = 1; choice < kChoices; ++choice) {
    const int count = std::popcount(choice);
    const double worth = std::pow(kWorthATerm, count - terms);
    if (!(fits[choice].error < worth * best.error - kExact)) continue;
    best = fits[choice];
    terms = count;
  }
  return best;
}

MeasuredTime BestFit(const std::vector<CostPoint>& points, const std::vector<double>& weights) {
  MeasuredTime best;
  double least = std::numeric_limits<double>::infinity();
  for (double half = 0; half <= kLargestHalfEfficiency; half = half == 0 ? 1 : half * 2) {
    MeasuredTime form = {.half_efficiency_tokens = half};
    std::vector<std::vector<double>> rows;
    for (const CostPoint& point : points) rows.push_back(FormTerms(point, form));
    const Fit fit = SolveNonNegative(SumToOne(std::move(rows), weights), points.size());
    if (!(fit.error < kWorthHalfEfficiency * least - kExact)) continue;
    least = fit.error;
    SetCoefficients(fit.coefficients, &form);
    best = form;
  }
  return best;
}

}  // namespace

MeasuredTime FitPlainTime(const std::vector<CostPoint>& points) {
  if (points.empty()) return {};
  std::vector<double> weights(points.size(), 1);
  MeasuredTime form;
  for (int round = 0; round < kRounds; ++round) {
    form = BestFit(points, weights);
    weights = HuberWeights(DistancesOf(points, form), kLeastOutlier);
  }
  return form;
}

MeasuredTime FitTime(const std::vector<CostPoint>& points) {
  const MeasuredTime plain = FitPlainTime(points);
  return FitEfficiency(points, plain).value_or(plain);
}

}  // namespace penstock::worker
