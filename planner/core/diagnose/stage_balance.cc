#include "planner/core/diagnose/stage_balance.h"

#include <algorithm>
#include <cstddef>

namespace penstock::core {

std::vector<double> BestStageFactors(absl::Span<const double> times, absl::Span<const int32_t> layers) {
  double of_layer = times[0] / layers[0];
  int32_t left = 0;
  for (size_t stage = 0; stage < times.size(); ++stage) {
    of_layer = std::min(of_layer, times[stage] / layers[stage]);
    left += layers[stage] - 1;
  }
  // One layer each, then layer after layer to the stage that has the least to do: that is the best division
  // of equal parts.
  std::vector<double> best;
  for (size_t stage = 0; stage < times.size(); ++stage)
    best.push_back(times[stage] - of_layer * (layers[stage] - 1));
  for (; left > 0; --left) *std::min_element(best.begin(), best.end()) += of_layer;
  for (size_t stage = 0; stage < times.size(); ++stage) best[stage] /= times[stage];
  return best;
}

}  // namespace penstock::core
