#include "planner/core/cost/slow_groups.h"

#include <algorithm>

#include "planner/core/cost/rounding.h"

namespace penstock::core {

SlowGroups::SlowGroups(absl::Span<const SlowRank> ranks, const Topology& topology)
    : positions_(topology.shape().positions), contexts_(topology.shape().group.context) {
  if (ranks.empty()) return;
  factors_.assign(static_cast<size_t>(topology.replicas()) * positions_ * contexts_, 1);
  for (const SlowRank& slow : ranks) {
    const RankPlace place = topology.PlaceOf(slow.rank);
    for (int context = 0; context < contexts_; ++context) {
      if (context != place.context && !topology.shape().group.divides_experts()) continue;
      double& factor = factors_[At(place.replica, place.position) + context];
      factor = std::max(factor, slow.factor);
    }
  }
}

bool SlowGroups::AnyOf(int replica) const {
  for (int position = 0; any() && position < positions_; ++position) {
    if (FactorOf(replica, position) > 1) return true;
  }
  return false;
}

double SlowGroups::FactorOf(int replica, int position) const {
  if (!any()) return 1;
  const absl::Span<const double> factors = FactorsOf(replica, position);
  return *std::max_element(factors.begin(), factors.end());
}

double SlowGroups::SpeedOf(int replica, int position) const {
  if (!any()) return 1;
  double sum = 0;
  for (const double factor : FactorsOf(replica, position)) sum += 1 / factor;
  return sum / contexts_;
}

bool SlowGroups::IsUneven(int replica) const {
  for (int position = 0; any() && position < positions_; ++position) {
    const absl::Span<const double> factors = FactorsOf(replica, position);
    const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
    if (*least < *most) return true;
  }
  return false;
}

int64_t SlowGroups::Slowed(int64_t ns, int replica, int position, int context) const {
  const double factor = FactorOf(replica, position, context);
  return factor > 1 ? RoundToInteger(static_cast<double>(ns) * factor) : ns;
}

}  // namespace penstock::core
