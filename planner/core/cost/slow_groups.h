// Stage groups that compute slower than the profile says, because one of their ranks does: the ranks of a
// group meet in every layer.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/profile.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

class SlowGroups {
 public:
  // Ranks are the topology's.
  SlowGroups(absl::Span<const SlowRank> ranks, const Topology& topology);

  bool any() const { return !factors_.empty(); }
  // At least 1.
  double FactorOf(int replica, int position) const {
    return any() ? factors_[static_cast<size_t>(replica) * positions_ + position] : 1;
  }
  bool AnyOf(int replica) const;
  // What a pass of the profile's `ns` takes there; rounded.
  int64_t Slowed(int64_t ns, int replica, int position) const;

 private:
  int positions_;
  // By replica and position; empty: none is slow.
  std::vector<double> factors_;
};

}  // namespace penstock::core
