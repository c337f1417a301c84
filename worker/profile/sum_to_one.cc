#include "worker/profile/sum_to_one.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/least_squares/least_squares.h"

namespace penstock::worker {
namespace {

// Of a column what those before it leave, below which they depend on each other.
constexpr double kDependent = 1e-9;
// A row that alone says what a coefficient is.
constexpr double kAlone = 1e-6;

double SumOf(const std::vector<double>& row, const std::vector<double>& solution) {
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) sum += row[i] * solution[i];
  return sum;
}

}  // namespace

SumToOne::SumToOne(std::vector<std::vector<double>> rows, std::vector<double> weights)
    : rows_(std::move(rows)), weights_(std::move(weights)), equations_(rows_.empty() ? 0 : rows_[0].size()) {
  for (size_t row = 0; row < rows_.size(); ++row) equations_.Add(rows_[row], /*value=*/1, weights_[row]);
}

void SumToOne::AddPrior(const std::vector<double>& row, double weight) {
  equations_.Add(row, /*value=*/0, weight);
  priors_.push_back({row, weight});
}

std::optional<SumToOne::Subset> SumToOne::SubsetOf(unsigned mask) const {
  Subset subset;
  for (int i = 0; i < columns(); ++i) {
    if ((mask >> i & 1U) == 0) continue;
    if (Square(i) == 0) return std::nullopt;
    subset.columns.push_back(i);
  }
  const auto scale = [&](int column) { return std::sqrt(Square(column)); };
  for (const int i : subset.columns)
    for (const int j : subset.columns)
      subset.matrix.push_back(equations_.matrix[i * columns() + j] / (scale(i) * scale(j)));
  return subset;
}

std::optional<std::vector<double>> SumToOne::Solve(unsigned mask) const {
  std::optional<Subset> subset = SubsetOf(mask);
  if (!subset.has_value()) return std::nullopt;
  const auto scale = [&](int column) { return std::sqrt(Square(column)); };
  std::vector<double> right;
  for (const int i : subset->columns) right.push_back(equations_.right[i] / scale(i));
  const auto scaled = SolvePositiveDefinite(std::move(subset->matrix), std::move(right), kDependent);
  if (!scaled.has_value()) return std::nullopt;
  std::vector<double> solution(columns());
  for (size_t k = 0; k < subset->columns.size(); ++k) {
    const int column = subset->columns[k];
    solution[column] = (*scaled)[k] / scale(column);
    if (solution[column] < 0) return std::nullopt;
  }
  return solution;
}

double SumToOne::SquaredError(const std::vector<double>& solution) const {
  double sum = 0;
  const std::vector<double> errors = Errors(solution);
  for (size_t row = 0; row < rows_.size(); ++row) sum += weights_[row] * errors[row] * errors[row];
  for (const Prior& prior : priors_) {
    const double off = SumOf(prior.row, solution);
    sum += prior.weight * off * off;
  }
  return sum;
}

std::vector<double> SumToOne::Errors(const std::vector<double>& solution) const {
  std::vector<double> errors;
  errors.reserve(rows_.size());
  for (const std::vector<double>& row : rows_) errors.push_back(SumOf(row, solution) - 1);
  return errors;
}

std::vector<double> SumToOne::LeftOutErrors(unsigned mask) const {
  const std::optional<Subset> subset = SubsetOf(mask);
  const std::optional<std::vector<double>> solution = Solve(mask);
  if (!subset.has_value() || !solution.has_value()) return {};
  std::vector<double> errors = Errors(*solution);
  for (size_t row = 0; row < rows_.size(); ++row) {
    std::vector<double> scaled;
    for (const int column : subset->columns) scaled.push_back(rows_[row][column] / std::sqrt(Square(column)));
    const auto solved = SolvePositiveDefinite(subset->matrix, scaled, kDependent);
    if (!solved.has_value()) return {};
    const double leverage = weights_[row] * SumOf(scaled, *solved);
    errors[row] /= std::max(1 - leverage, kAlone);
  }
  return errors;
}

}  // namespace penstock::worker
