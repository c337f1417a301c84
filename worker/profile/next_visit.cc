#include "worker/profile/next_visit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/least_squares/least_squares.h"
#include "worker/profile/fit_efficiency.h"
#include "worker/profile/form_terms.h"

namespace penstock::worker {
namespace {

using Terms = std::vector<std::vector<double>>;

// Relative; what visits of one shape differ by.
constexpr double kNoise = 0.02;
// Keeps columns that depend on each other apart.
constexpr double kRidge = 1e-6;
constexpr int kRobustRounds = 5;

// The terms of a form without half_efficiency_tokens at a shape, over its time; those of tokens by the points
// that a table of efficiency would have.
std::vector<double> TermsOf(const CostPoint& point, const std::vector<double>& knots) {
  std::vector<double> terms = FormTerms(point, {});
  if (knots.empty()) return terms;
  for (const auto& [term, tokens] :
       {std::pair(kTargetToken, point.tokens.target), {kSourceToken, point.tokens.source}}) {
    for (const double share : SharesOfKnots(knots, tokens)) terms.push_back(share * terms[term]);
    terms[term] = 0;
  }
  return terms;
}

double Product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Columns of a mean square of 1, so that one ridge suits all of them.
void Scale(Terms& rows) {
  for (size_t column = 0; column < rows.front().size(); ++column) {
    double square = 0;
    for (const auto& row : rows) square += row[column] * row[column];
    const double scale = square > 0 ? std::sqrt(square / static_cast<double>(rows.size())) : 1;
    for (auto& row : rows) row[column] /= scale;
  }
}

// Least squares of times that should be 1.
class WeighedFit {
 public:
  WeighedFit(const Terms& rows, const std::vector<double>& weights)
      : equations_(rows.front().size(), kRidge) {
    for (size_t row = 0; row < rows.size(); ++row) equations_.Add(rows[row], /*value=*/1, weights[row]);
    solution_ = Solve(equations_.right);
  }

  std::vector<double> Distances(const Terms& rows) const {
    std::vector<double> distances;
    for (const auto& row : rows) distances.push_back(std::abs(Product(row, solution_) - 1));
    return distances;
  }
  // Of what the fit says there, in units of that of a row with a weight of 1.
  double Variance(const std::vector<double>& row) const { return Product(row, Solve(row)); }

 private:
  std::vector<double> Solve(std::vector<double> right) const {
    const size_t columns = right.size();
    return SolvePositiveDefinite(equations_.matrix, std::move(right), 0)
        .value_or(std::vector<double>(columns, 0.0));
  }

  NormalEquations equations_;
  std::vector<double> solution_;
};

// Of shapes from a fit in which those that are far off count less.
std::vector<double> RobustDistances(const Terms& rows, const std::vector<double>& visits) {
  std::vector<double> distances = WeighedFit(rows, visits).Distances(rows);
  for (int round = 0; round < kRobustRounds; ++round) {
    std::vector<double> weights = HuberWeights(distances, kNoise);
    for (size_t row = 0; row < rows.size(); ++row) weights[row] *= visits[row];
    distances = WeighedFit(rows, weights).Distances(rows);
  }
  return distances;
}

std::optional<size_t> LeastVisited(const std::vector<VisitedShape>& shapes, size_t below) {
  std::optional<size_t> least;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i].open || shapes[i].visits >= below) continue;
    if (!least.has_value() || shapes[i].visits < shapes[*least].visits) least = i;
  }
  return least;
}

}  // namespace

std::vector<double> Doubts(const std::vector<VisitedShape>& shapes) {
  if (shapes.empty()) return {};
  Terms rows;
  std::vector<double> visits;
  std::vector<CostPoint> points;
  for (const VisitedShape& shape : shapes) points.push_back(shape.point);
  const std::vector<double> knots = EfficiencyKnots(points);
  for (const VisitedShape& shape : shapes) {
    rows.push_back(TermsOf(shape.point, knots));
    visits.push_back(static_cast<double>(shape.visits));
  }
  Scale(rows);
  const WeighedFit fit(rows, visits);
  std::vector<double> doubts = RobustDistances(rows, visits);
  for (size_t i = 0; i < rows.size(); ++i) doubts[i] = fit.Variance(rows[i]) * (kNoise + doubts[i]);
  return doubts;
}

std::optional<size_t> NextVisit(const std::vector<VisitedShape>& shapes, bool fitted) {
  const size_t most = fitted ? kFewestVisits : static_cast<size_t>(-1);
  if (const auto least = LeastVisited(shapes, most); least.has_value() || !fitted) return least;
  const std::vector<double> doubts = Doubts(shapes);
  std::optional<size_t> next;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].open && (!next.has_value() || doubts[i] > doubts[*next])) next = i;
  }
  return next;
}

}  // namespace penstock::worker
