#include "worker/profile/form_terms.h"

#include <cmath>
#include <cstddef>

namespace penstock::worker {

std::vector<double> FormTerms(const CostPoint& point, const MeasuredTime& form) {
  const auto slow = [&](double tokens) {
    return tokens > 0 ? (1 + form.half_efficiency_tokens / tokens) / point.ns : 0;
  };
  const TokenFigures& tokens = point.tokens;
  const double target = slow(tokens.target);
  const double source = slow(tokens.source);
  return {1 / point.ns,
          tokens.target * form.TokenFactor(tokens.target) * target,
          tokens.target_square * target,
          tokens.cross * target,
          tokens.source * form.TokenFactor(tokens.source) * source,
          tokens.source_square * source,
          tokens.packed_rows / point.ns,
          tokens.target_call_square / point.ns,
          tokens.source_call_square / point.ns,
          tokens.divided_rows / point.ns};
}

std::vector<double> CoefficientsOf(const MeasuredTime& form) {
  return {form.fixed_ns,      form.target_token_ns,       form.target_square_ns,
          form.cross_ns,      form.source_token_ns,       form.source_square_ns,
          form.packed_row_ns, form.target_call_square_ns, form.source_call_square_ns,
          form.divided_row_ns};
}

void SetCoefficients(const std::vector<double>& coefficients, MeasuredTime* form) {
  double* const terms[kFormTerms] = {
      &form->fixed_ns,      &form->target_token_ns,       &form->target_square_ns,
      &form->cross_ns,      &form->source_token_ns,       &form->source_square_ns,
      &form->packed_row_ns, &form->target_call_square_ns, &form->source_call_square_ns,
      &form->divided_row_ns};
  for (int i = 0; i < kFormTerms; ++i) *terms[i] = coefficients[i];
}

std::vector<double> DistancesOf(const std::vector<CostPoint>& points, const MeasuredTime& form) {
  std::vector<double> distances;
  distances.reserve(points.size());
  for (const CostPoint& point : points) distances.push_back(std::abs(form(point.tokens) / point.ns - 1));
  return distances;
}

}  // namespace penstock::worker
