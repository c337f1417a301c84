#include "planner/core/cost/slow_groups.h"

#include <algorithm>

#include "planner/core/cost/rounding.h"

namespace penstock::core {

SlowGroups::SlowGroups(absl::Span<const SlowRank> ranks, const Topology& topology)
    : positions_(topology.shape().positions) {
  if (ranks.empty()) return;
  factors_.assign(static_cast<size_t>(topology.replicas()) * positions_, 1);
  for (const SlowRank& slow : ranks) {
    const RankPlace place = topology.PlaceOf(slow.rank);
    double& factor = factors_[static_cast<size_t>(place.replica) * positions_ + place.position];
    factor = std::max(factor, slow.factor);
  }
}

bool SlowGroups::AnyOf(int replica) const {
  for (int position = 0; any() && position < positions_; ++position) {
    if (FactorOf(replica, position) > 1) return true;
  }
  return false;
}

int64_t SlowGroups::Slowed(int64_t ns, int replica, int position) const {
  const double factor = FactorOf(replica, position);
  return factor > 1 ? RoundToInteger(static_cast<double>(ns) * factor) : ns;
}

}  // namespace penstock::core
