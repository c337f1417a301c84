#include "planner/core/model/share_weights.h"

#include <algorithm>
#include <numeric>

namespace penstock::core {

ShareWeights ShareWeightsOf(absl::Span<const uint32_t> all, int first_rank, int ranks) {
  ShareWeights weights;
  if (all.empty() || std::equal(all.begin() + 1, all.end(), all.begin())) return weights;
  uint32_t divisor = 0;
  for (const uint32_t weight : all) {
    divisor = std::gcd(divisor, weight);
    weights.all += weight;
  }
  weights.all /= divisor;
  for (const uint32_t weight : all.subspan(first_rank, ranks))
    weights.of_ranks.push_back(int64_t{weight} / divisor);
  return weights;
}

}  // namespace penstock::core
