// What fits of measured times have in common: a system of equations, and less weight for what is far off.
//
//   std::vector<double> weights(rows.size(), 1);
//   for (int round = 0; round < 10; ++round) {
//     NormalEquations equations(columns);
//     for (size_t i = 0; i < rows.size(); ++i) equations.Add(rows[i], /*value=*/1, weights[i]);
//     const auto solution = SolvePositiveDefinite(equations.matrix, equations.right, 1e-9);
//     weights = HuberWeights(Distances(*solution), 0.02);
//   }
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace penstock {

// Of the weighted least squares of rows that should have a value each, summed up row by row.
struct NormalEquations {
  // `ridge`: what its diagonal begins with.
  explicit NormalEquations(size_t columns, double ridge = 0);

  // A row has as many elements as there are columns.
  void Add(absl::Span<const double> row, double value, double weight);

  // Row-major: the sum of weight * row[i] * row[j].
  std::vector<double> matrix;
  // The sum of weight * row[i] * value.
  std::vector<double> right;
};

// x of A x = b for a symmetric, positive definite A, row-major (Cholesky). Nothing where a pivot is not above
// `least_pivot`: of a matrix with ones on its diagonal the share of a column that those before it leave.
std::optional<std::vector<double>> SolvePositiveDefinite(std::vector<double> matrix,
                                                         std::vector<double> right, double least_pivot);

// How much rows count that are so far from a fit (absolute values, in one unit): those beyond twice the
// median distance, 1.345 standard deviations of a normal distribution, count less by how far they are beyond
// it (Huber 1964, "Robust Estimation of a Location Parameter", by iterated weights; 95 % efficient). Those up
// to `least`, above 0, count whole.
std::vector<double> HuberWeights(absl::Span<const double> distances, double least);

}  // namespace penstock
