#include "worker/profile/fit.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "common/least_squares/least_squares.h"

namespace penstock::worker {
namespace {

// fixed, target, target square, cross, source, source square, packed rows, calls of target and of source
constexpr int kColumns = 9;
// Terms that are there only where they are worth it.
constexpr std::array<unsigned, 2> kOptional = {0b001'000000, 0b110'000000};
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

using Row = std::array<double, kColumns>;

// The unknowns' factors at every point, divided by the measured time: their sum should be 1.
struct Rows {
  std::vector<Row> factors;
  // How much each counts.
  std::vector<double> weights;
};

struct Fit {
  Row solution = {};
  double half_efficiency = 0;
  // Squared relative ones.
  double error = std::numeric_limits<double>::infinity();
};

Row FactorsAt(const CostPoint& point, double half_efficiency) {
  const auto slow = [&](double tokens) { return tokens > 0 ? (1 + half_efficiency / tokens) / point.ns : 0; };
  const TokenFigures& tokens = point.tokens;
  const double target = slow(tokens.target);
  const double source = slow(tokens.source);
  return {1 / point.ns,
          tokens.target * target,
          tokens.target_square * target,
          tokens.cross * target,
          tokens.source * source,
          tokens.source_square * source,
          tokens.packed_rows / point.ns,
          tokens.target_call_square / point.ns,
          tokens.source_call_square / point.ns};
}

double ErrorAt(const Row& factors, const Row& solution) {
  double error = -1;
  for (int i = 0; i < kColumns; ++i) error += factors[i] * solution[i];
  return error;
}

double SquaredError(const Rows& rows, const Row& solution) {
  double sum = 0;
  for (size_t row = 0; row < rows.factors.size(); ++row) {
    const double error = ErrorAt(rows.factors[row], solution);
    sum += rows.weights[row] * error * error;
  }
  return sum;
}

// Scaled to a unit diagonal.
struct NormalEquations {
  std::array<Row, kColumns> matrix = {};
  Row right = {};
  Row scale = {};
};

NormalEquations BuildNormalEquations(const Rows& rows) {
  NormalEquations equations;
  for (size_t row = 0; row < rows.factors.size(); ++row) {
    const Row& factors = rows.factors[row];
    for (int i = 0; i < kColumns; ++i) {
      equations.right[i] += rows.weights[row] * factors[i];
      for (int j = 0; j < kColumns; ++j)
        equations.matrix[i][j] += rows.weights[row] * factors[i] * factors[j];
    }
  }
  for (int i = 0; i < kColumns; ++i) equations.scale[i] = std::sqrt(equations.matrix[i][i]);
  for (int i = 0; i < kColumns; ++i) {
    if (equations.scale[i] == 0) continue;
    equations.right[i] /= equations.scale[i];
    for (int j = 0; j < kColumns; ++j) {
      if (equations.scale[j] > 0) equations.matrix[i][j] /= equations.scale[i] * equations.scale[j];
    }
  }
  return equations;
}

// Over the columns in `mask`; nothing when they are (nearly) dependent or a coefficient is negative.
std::optional<Row> SolveSubset(const NormalEquations& equations, unsigned mask) {
  constexpr double kDependent = 1e-9;
  std::vector<int> used;
  for (int i = 0; i < kColumns; ++i) {
    if ((mask >> i & 1U) == 0) continue;
    if (equations.scale[i] == 0) return std::nullopt;
    used.push_back(i);
  }
  std::vector<double> matrix, right;
  for (const int i : used) {
    right.push_back(equations.right[i]);
    for (const int j : used) matrix.push_back(equations.matrix[i][j]);
  }
  const auto scaled = SolvePositiveDefinite(std::move(matrix), std::move(right), kDependent);
  if (!scaled.has_value()) return std::nullopt;
  Row solution = {};
  for (size_t k = 0; k < used.size(); ++k) {
    solution[used[k]] = (*scaled)[k] / equations.scale[used[k]];
    if (solution[used[k]] < 0) return std::nullopt;
  }
  return solution;
}

// Which of the optional terms a subset has: bit i for the i-th.
unsigned ChoiceOf(unsigned mask) {
  unsigned choice = 0;
  for (size_t i = 0; i < kOptional.size(); ++i) choice |= (mask & kOptional[i]) != 0 ? 1U << i : 0;
  return choice;
}

// By ChoiceOf. The best non-negative solution is an unconstrained one over some subset of the columns (Lawson
// and Hanson, "Solving least squares problems", 1974, chapter 23); there are 511.
std::array<Fit, kChoices> BestOfChoices(const Rows& rows) {
  const NormalEquations equations = BuildNormalEquations(rows);
  std::array<Fit, kChoices> best;
  for (unsigned mask = 1; mask < 1U << kColumns; ++mask) {
    const std::optional<Row> solution = SolveSubset(equations, mask);
    if (!solution) continue;
    const double error = SquaredError(rows, *solution);
    Fit& of_choice = best[ChoiceOf(mask)];
    if (error < of_choice.error) of_choice = {.solution = *solution, .error = error};
  }
  return best;
}

Fit SolveNonNegative(const Rows& rows) {
  const std::array<Fit, kChoices> fits = BestOfChoices(rows);
  Fit best = fits[0];
  if (rows.factors.size() < kFewestForATerm) return best;
  int terms = 0;
  // Fewer terms come first: 0, 1, 2, both.
  for (unsigned choice = 1; choice < kChoices; ++choice) {
    const int count = static_cast<int>(choice & 1U) + static_cast<int>(choice >> 1U);
    const double worth = std::pow(kWorthATerm, count - terms);
    if (!(fits[choice].error < worth * best.error - kExact)) continue;
    best = fits[choice];
    terms = count;
  }
  return best;
}

Fit BestFit(const std::vector<CostPoint>& points, const std::vector<double>& weights) {
  Fit best;
  for (double half = 0; half <= kLargestHalfEfficiency; half = half == 0 ? 1 : half * 2) {
    Rows rows = {.factors = {}, .weights = weights};
    for (const CostPoint& point : points) rows.factors.push_back(FactorsAt(point, half));
    Fit fit = SolveNonNegative(rows);
    fit.half_efficiency = half;
    if (fit.error < kWorthHalfEfficiency * best.error - kExact) best = fit;
  }
  return best;
}

std::vector<double> Distances(const std::vector<CostPoint>& points, const Fit& fit) {
  std::vector<double> distances;
  for (const CostPoint& point : points)
    distances.push_back(std::abs(ErrorAt(FactorsAt(point, fit.half_efficiency), fit.solution)));
  return distances;
}

}  // namespace

MeasuredTime FitTime(const std::vector<CostPoint>& points) {
  std::vector<double> weights(points.size(), 1);
  Fit fit;
  for (int round = 0; round < kRounds; ++round) {
    fit = BestFit(points, weights);
    weights = HuberWeights(Distances(points, fit), kLeastOutlier);
  }
  const Row& terms = fit.solution;
  return {.fixed_ns = terms[0],
          .target_token_ns = terms[1],
          .target_square_ns = terms[2],
          .cross_ns = terms[3],
          .source_token_ns = terms[4],
          .source_square_ns = terms[5],
          .half_efficiency_tokens = fit.half_efficiency,
          .packed_row_ns = terms[6],
          .target_call_square_ns = terms[7],
          .source_call_square_ns = terms[8]};
}

}  // namespace penstock::worker
