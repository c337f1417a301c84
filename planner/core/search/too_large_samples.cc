#include "planner/core/search/too_large_samples.h"

#include <algorithm>
#include <cstdint>

namespace penstock::core {

std::vector<char> TooLargeSamples(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens) {
  std::vector<char> too_large;
  if (space.room().alike()) return too_large;
  for (int replica = 0; replica < space.replicas(); ++replica) {
    for (uint32_t sample = 0; sample < tokens.size(); ++sample) {
      const bool asks = !space.stop().stopped();
      too_large.push_back(
          asks && !space.FitsReplica(replica, SumsOf({&sample, 1}, tokens, Layout::kPacked)) ? 1 : 0);
    }
  }
  if (std::ranges::find(too_large, 1) == too_large.end()) too_large.clear();
  return too_large;
}

}  // namespace penstock::core
