#include "common/least_squares/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/median/median.h"

namespace penstock {
namespace {

constexpr double kOutlierMedians = 2;

}  // namespace

NormalEquations::NormalEquations(size_t columns, double ridge) : matrix(columns * columns), right(columns) {
  for (size_t i = 0; i < columns; ++i) matrix[i * columns + i] = ridge;
}

void NormalEquations::Add(absl::Span<const double> row, double value, double weight) {
  for (size_t i = 0; i < row.size(); ++i) {
    const double weighed = weight * row[i];
    right[i] += weighed * value;
    for (size_t j = 0; j < row.size(); ++j) matrix[i * row.size() + j] += weighed * row[j];
  }
}

std::optional<std::vector<double>> SolvePositiveDefinite(std::vector<double> matrix,
                                                         std::vector<double> right, double least_pivot) {
  const size_t n = right.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= matrix[i * n + k] * matrix[j * n + k];
      if (i == j && !(sum > least_pivot)) return std::nullopt;
      matrix[i * n + j] = i == j ? std::sqrt(sum) : sum / matrix[j * n + j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) right[i] -= matrix[i * n + k] * right[k];
    right[i] /= matrix[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) right[i] -= matrix[k * n + i] * right[k];
    right[i] /= matrix[i * n + i];
  }
  return right;
}

std::vector<double> HuberWeights(absl::Span<const double> distances, double least) {
  std::vector<double> sorted(distances.begin(), distances.end());
  const double far = std::max(kOutlierMedians * UpperMedian(sorted), least);
  std::vector<double> weights;
  weights.reserve(distances.size());
  for (const double distance : distances) weights.push_back(distance <= far ? 1 : far / distance);
  return weights;
}

}  // namespace penstock
