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

// fixed, target, target square, cross, source, source square, packed rows
constexpr int kColumns = 7;
constexpr int kPackedRows = 6;
// One term more of twenty shapes takes a twentieth off the error of mere noise.
constexpr double kWorthRows = 0.9;
constexpr double kLargestHalfEfficiency = 4096;
// A sum of squared relative errors below which a fit is exact but for rounding.
constexpr double kExact = 1e-16;

using Row = std::array<double, kColumns>;

struct Fit {
  Row solution = {};
  // Squared relative ones.
  double error = std::numeric_limits<double>::infinity();
};

// The unknowns' factors at a point, divided by the measured time: the sum should be 1.
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
          tokens.packed_rows / point.ns};
}

double SquaredError(const std::vector<Row>& rows, const Row& solution) {
  double sum = 0;
  for (const Row& row : rows) {
    double error = -1;
    for (int i = 0; i < kColumns; ++i) error += row[i] * solution[i];
    sum += error * error;
  }
  return sum;
}

// Scaled to a unit diagonal.
struct NormalEquations {
  std::array<Row, kColumns> matrix = {};
  Row right = {};
  Row scale = {};
};

NormalEquations BuildNormalEquations(const std::vector<Row>& rows) {
  NormalEquations equations;
  for (int i = 0; i < kColumns; ++i) {
    for (const Row& row : rows) equations.scale[i] += row[i] * row[i];
    equations.scale[i] = std::sqrt(equations.scale[i]);
  }
  for (int i = 0; i < kColumns; ++i) {
    if (equations.scale[i] == 0) continue;
    for (const Row& row : rows) {
      equations.right[i] += row[i] / equations.scale[i];
      for (int j = 0; j < kColumns; ++j) {
        if (equations.scale[j] > 0)
          equations.matrix[i][j] += row[i] / equations.scale[i] * row[j] / equations.scale[j];
      }
    }
  }
  return equations;
}

// Over the columns in `mask`; nothing when they are (nearly) dependent or a coefficient is negative.
std::optional<Row> SolveSubset(const NormalEquations& equations, unsigned mask) {
  constexpr double kDependent = 1e-9;
  std::vector<int> used;
  for (int i = 0; i < kColumns; ++i) {
    if ((mask >> i & 1U) != 0) used.push_back(i);
  }
  std::vector<double> matrix, right;
  for (const int i : used) {
    if (equations.scale[i] == 0) return std::nullopt;
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

// The best non-negative solution is an unconstrained one over some subset of the columns (Lawson and Hanson,
// "Solving least squares problems", 1974, chapter 23); there are 127.
Fit BestOfSubsets(const std::vector<Row>& rows, const NormalEquations& equations, unsigned first,
                  unsigned end) {
  Fit best;
  for (unsigned mask = first; mask < end; ++mask) {
    const std::optional<Row> solution = SolveSubset(equations, mask);
    if (!solution) continue;
    const double error = SquaredError(rows, *solution);
    if (error < best.error) best = {*solution, error};
  }
  return best;
}

Fit SolveNonNegative(const std::vector<Row>& rows) {
  const NormalEquations equations = BuildNormalEquations(rows);
  const Fit without = BestOfSubsets(rows, equations, 1, 1U << kPackedRows);
  const Fit with = BestOfSubsets(rows, equations, 1U << kPackedRows, 1U << kColumns);
  return with.error < kWorthRows * without.error - kExact ? with : without;
}

}  // namespace

MeasuredTime FitTime(const std::vector<CostPoint>& points) {
  MeasuredTime best;
  double best_error = std::numeric_limits<double>::infinity();
  for (double half = 0; half <= kLargestHalfEfficiency; half = half == 0 ? 1 : half * 2) {
    std::vector<Row> rows;
    for (const CostPoint& point : points) rows.push_back(FactorsAt(point, half));
    const auto [solution, error] = SolveNonNegative(rows);
    // A little better is not enough: without the term the form is simpler.
    if (!(error < 0.98 * best_error - kExact)) continue;
    best_error = error;
    best = {solution[0], solution[1], solution[2], solution[3], solution[4], solution[5], half, solution[6]};
  }
  return best;
}

}  // namespace penstock::worker
