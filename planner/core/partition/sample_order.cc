#include "planner/core/partition/sample_order.h"

#include <algorithm>
#include <numeric>

namespace penstock::core {

std::vector<uint32_t> OrderByLength(absl::Span<const SampleTokens> samples) {
  std::vector<uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (samples[a].source != samples[b].source) return samples[a].source < samples[b].source;
    return samples[a].target < samples[b].target;
  });
  return order;
}

}  // namespace penstock::core
