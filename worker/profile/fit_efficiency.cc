#include "worker/profile/fit_efficiency.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "common/least_squares/least_squares.h"
#include "worker/profile/form_terms.h"
#include "worker/profile/sum_to_one.h"

namespace penstock::worker {
namespace {

constexpr double kKnotFactor = 4;
// Fewer shapes do not tell a table from what other terms take.
constexpr size_t kFewestPoints = 16;
constexpr size_t kFewestPointsOfKnot = 4;
// Tables of fewer, of shapes that were all small, said little that a form's fixed part does not, and were
// wrong for larger ones.
constexpr size_t kFewestKnots = 4;
// Of what plain forms are off, what a table may leave. Where there is nothing to find, one in seven fits to
// 19 shapes has a table by that, and is a tenth further off for it, 1.7 instead of 1.5 % under noise of 5 %;
// what there is is found nine times in ten under noise of 2 %, and leaves half of the error.
constexpr double kWorthATable = 0.9;
// Below this (0.1 %) a plain form is exact, but for rounding and what clocks resolve.
constexpr double kExactForm = 1e-3;
// Neighbours differ by a fifth where points are a few percent off.
constexpr double kPriorWeight = 0.05;
constexpr double kLeastTableOutlier = 0.02;
constexpr double kLeastFactor = 0.01;
constexpr double kMostFactor = 100;
constexpr int kTableRounds = 5;
// Tables of a form with both sides, and how many times as much a token of one takes as of the other.
constexpr int kTurns = 3;

constexpr int kOthers[] = {kFixed,     kTargetSquare, kCross,      kSourceSquare,
                           kPackedRow, kTargetCall,   kSourceCall, kDividedRow};
constexpr int kOtherTerms = 8;
// Of these: packed rows, calls and divided rows, which a form has where they are worth it.
constexpr unsigned kOptionalOthers = 0b1111'0000;

// Of a form's terms those that are above 0.
unsigned MaskOf(const std::vector<double>& coefficients) {
  unsigned mask = 0;
  for (size_t i = 0; i < coefficients.size(); ++i) mask |= coefficients[i] > 0 ? 1U << i : 0;
  return mask;
}

// Which of kOthers, as a mask over them.
unsigned OptionalOf(const MeasuredTime& form) {
  const std::vector<double> coefficients = CoefficientsOf(form);
  unsigned optional = 0;
  for (int i = 0; i < kOtherTerms; ++i) optional |= coefficients[kOthers[i]] > 0 ? 1U << i : 0;
  return optional & kOptionalOthers;
}

double MeanDistance(const std::vector<double>& errors) {
  if (errors.empty()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const double error : errors) sum += std::abs(error);
  return sum / static_cast<double>(errors.size());
}

double LeftOut(const std::vector<CostPoint>& points, const MeasuredTime& form,
               const std::vector<double>& weights) {
  std::vector<std::vector<double>> rows;
  for (const CostPoint& point : points) rows.push_back(FormTerms(point, form));
  return MeanDistance(SumToOne(std::move(rows), weights).LeftOutErrors(MaskOf(CoefficientsOf(form))));
}

// A form's terms without those of tokens, then a column for each knot whose coefficient is its factor.
class TableFit {
 public:
  // Of `form` the coefficients of tokens count; `optional`: which of the optional terms there are.
  TableFit(const std::vector<CostPoint>& points, const std::vector<double>& knots, const MeasuredTime& form,
           unsigned optional, const std::vector<double>& weights)
      : sums_(RowsOf(points, knots, form), weights), knots_(static_cast<int>(knots.size())) {
    for (int knot = 1; knot < knots_; ++knot) {
      std::vector<double> row(kOtherTerms + knots.size());
      row[kOtherTerms + knot] = 1;
      row[kOtherTerms + knot - 1] = -1;
      sums_.AddPrior(row, kPriorWeight);
    }
    Solve(optional);
  }

  bool found() const { return !solution_.empty(); }
  // As many as there are knots.
  std::vector<double> Factors() const { return {solution_.begin() + kOtherTerms, solution_.end()}; }
  std::vector<double> Errors() const { return sums_.Errors(solution_); }
  double LeftOut() const { return MeanDistance(sums_.LeftOutErrors(mask_)); }
  void SetOthers(MeasuredTime* form) const {
    std::vector<double> coefficients = CoefficientsOf(*form);
    for (int i = 0; i < kOtherTerms; ++i) coefficients[kOthers[i]] = solution_[i];
    SetCoefficients(coefficients, form);
  }

 private:
  static std::vector<std::vector<double>> RowsOf(const std::vector<CostPoint>& points,
                                                 const std::vector<double>& knots, const MeasuredTime& form) {
    std::vector<std::vector<double>> rows;
    for (const CostPoint& point : points) {
      const std::vector<double> terms = FormTerms(point, MeasuredTime());
      std::vector<double>& row = rows.emplace_back();
      for (const int term : kOthers) row.push_back(terms[term]);
      const std::vector<double> target = SharesOfKnots(knots, point.tokens.target);
      const std::vector<double> source = SharesOfKnots(knots, point.tokens.source);
      for (size_t knot = 0; knot < knots.size(); ++knot)
        row.push_back(form.target_token_ns * terms[kTargetToken] * target[knot] +
                      form.source_token_ns * terms[kSourceToken] * source[knot]);
    }
    return rows;
  }

  void Solve(unsigned optional) {
    const unsigned knots = ((1U << knots_) - 1) << kOtherTerms;
    double least = std::numeric_limits<double>::infinity();
    for (unsigned others = 0; others < 1U << kOtherTerms; ++others) {
      if ((others & kOptionalOthers & ~optional) != 0) continue;
      const auto solution = sums_.Solve(others | knots);
      if (!solution.has_value()) continue;
      const double error = sums_.SquaredError(*solution);
      if (error >= least) continue;
      least = error;
      solution_ = *solution;
      mask_ = others | knots;
    }
  }

  SumToOne sums_;
  int knots_;
  unsigned mask_ = 0;
  std::vector<double> solution_;
};

// So that time never falls (v1::LayerTime), and within what tables may say. `one`: what is 1.
std::vector<EfficiencyPoint> TableOf(const std::vector<double>& knots, const std::vector<double>& factors,
                                     double one) {
  // Above what rounding takes for falling.
  constexpr double kMargin = 1 + 1e-9;
  std::vector<EfficiencyPoint> table;
  for (size_t i = 0; i < knots.size(); ++i) {
    double factor = std::clamp(factors[i] / one, kLeastFactor, kMostFactor);
    if (i > 0) {
      const EfficiencyPoint& before = table.back();
      factor = std::max(factor, kMargin * before.factor * knots[i] / (2 * knots[i] - before.tokens));
    }
    table.push_back({knots[i], factor});
  }
  return table;
}

// The coefficients of tokens beside a table; all others are those of the last fit.
void FitTokens(const std::vector<CostPoint>& points, const std::vector<double>& weights, MeasuredTime* form) {
  std::vector<std::vector<double>> rows;
  for (const CostPoint& point : points) rows.push_back(FormTerms(point, *form));
  if (const auto solution = SumToOne(std::move(rows), weights).Solve(MaskOf(CoefficientsOf(*form))))
    SetCoefficients(*solution, form);
}

}  // namespace

std::vector<double> EfficiencyKnots(const std::vector<CostPoint>& points) {
  if (points.size() < kFewestPoints) return {};
  double fewest = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const CostPoint& point : points) {
    for (const double tokens : {point.tokens.target, point.tokens.source}) {
      if (tokens <= 0) continue;
      fewest = std::min(fewest, tokens);
      most = std::max(most, tokens);
    }
  }
  std::vector<double> knots;
  for (double knot = most; knot >= kKnotFactor * fewest; knot = std::round(knot / kKnotFactor)) {
    if ((knots.size() + 1) * kFewestPointsOfKnot > points.size()) break;
    knots.push_back(knot);
  }
  std::reverse(knots.begin(), knots.end());
  return knots.size() >= kFewestKnots ? knots : std::vector<double>();
}

std::vector<double> SharesOfKnots(const std::vector<double>& knots, double tokens) {
  std::vector<double> shares(knots.size());
  const auto above = std::upper_bound(knots.begin(), knots.end(), tokens);
  const auto at = static_cast<size_t>(above - knots.begin());
  if (at == 0 || above == knots.end()) {
    shares[at == 0 ? 0 : at - 1] = 1;
    return shares;
  }
  shares[at] = (tokens - knots[at - 1]) / (knots[at] - knots[at - 1]);
  shares[at - 1] = 1 - shares[at];
  return shares;
}

std::optional<MeasuredTime> FitEfficiency(const std::vector<CostPoint>& points, const MeasuredTime& plain) {
  const std::vector<double> knots = EfficiencyKnots(points);
  if (knots.empty() || plain.target_token_ns + plain.source_token_ns <= 0) return std::nullopt;
  const std::vector<double> weights = HuberWeights(DistancesOf(points, plain), kLeastTableOutlier);
  const double without = LeftOut(points, plain, weights);
  if (!(without > kExactForm)) return std::nullopt;
  MeasuredTime form = plain;
  form.half_efficiency_tokens = 0;
  std::vector<double> of_table = weights;
  double with = std::numeric_limits<double>::infinity();
  const int turns = plain.target_token_ns > 0 && plain.source_token_ns > 0 ? kTurns : 1;
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<double> factors;
    for (int round = 0; round < kTableRounds; ++round) {
      const TableFit fit(points, knots, form, OptionalOf(plain), of_table);
      if (!fit.found()) return std::nullopt;
      factors = fit.Factors();
      with = fit.LeftOut();
      fit.SetOthers(&form);
      std::vector<double> distances = fit.Errors();
      for (double& distance : distances) distance = std::abs(distance);
      of_table = HuberWeights(distances, kLeastTableOutlier);
    }
    const double middle = std::max(factors[factors.size() / 2], kLeastFactor);
    form.efficiency = TableOf(knots, factors, middle);
    form.target_token_ns *= middle;
    form.source_token_ns *= middle;
    FitTokens(points, of_table, &form);
  }
  if (!(with < kWorthATable * without)) return std::nullopt;
  return form;
}

}  // namespace penstock::worker
