#include "planner/core/cost/profile.h"

#include <algorithm>

#include "planner/core/cost/rounding.h"

namespace penstock::core {

double FactorOfTable(const std::vector<EfficiencyPoint>& efficiency, double tokens) {
  if (tokens <= efficiency.front().tokens) return efficiency.front().factor;
  if (tokens >= efficiency.back().tokens) return efficiency.back().factor;
  const auto above =
      std::upper_bound(efficiency.begin(), efficiency.end(), tokens,
                       [](double value, const EfficiencyPoint& point) { return value < point.tokens; });
  const auto below = above - 1;
  const double fraction = (tokens - below->tokens) / (above->tokens - below->tokens);
  return below->factor + fraction * (above->factor - below->factor);
}

LayerTime LayerTime::AtBestEfficiency() const {
  LayerTime best = *this;
  best.efficiency.clear();
  if (efficiency.empty()) return best;
  const auto least = std::min_element(
      efficiency.begin(), efficiency.end(),
      [](const EfficiencyPoint& left, const EfficiencyPoint& right) { return left.factor < right.factor; });
  best.target_token_ns *= least->factor;
  best.source_token_ns *= least->factor;
  return best;
}

double LayerTime::operator()(const TokenSums& sums) const {
  double time = fixed_ns;
  if (sums.target > 0) {
    time += (target_token_ns * sums.target * TokenFactor(sums.target) +
             target_square_ns * sums.target_square + cross_ns * sums.cross) *
            (1.0 + half_efficiency_tokens / sums.target);
  }
  if (sums.source > 0) {
    time +=
        (source_token_ns * sums.source * TokenFactor(sums.source) + source_square_ns * sums.source_square) *
        (1.0 + half_efficiency_tokens / sums.source);
  }
  if (packed_row_ns > 0) time += packed_row_ns * sums.packed_rows();
  if (target_call_square_ns > 0) time += target_call_square_ns * sums.target_call_square();
  if (source_call_square_ns > 0) time += source_call_square_ns * sums.source_call_square();
  if (divided_row_ns > 0) time += divided_row_ns * sums.divided_rows;
  return time;
}

const TensorCost* LayerProfile::AtDegree(int32_t degree, int32_t expert) const {
  const TensorCost* without_experts = nullptr;
  for (const TensorCost& cost : tensor) {
    if (cost.degree != degree) continue;
    if (cost.expert == expert) return &cost;
    if (cost.expert == 1) without_experts = &cost;
  }
  return without_experts;
}

bool LayerProfile::peak_has_gradients() const {
  const LayerBytes& kept = stored[kKeepAll];
  const double source = peak.source_token_bytes - kept.source_token_bytes;
  const double target = peak.target_token_bytes - kept.target_token_bytes;
  return std::min(source, target) >= 0 && std::max(source, target) > 0;
}

int64_t LayerBytes::operator()(const TokenSums& sums) const {
  return RoundToInteger(source_token_bytes * sums.source + target_token_bytes * sums.target);
}

}  // namespace penstock::core
