// Ranks that compute slower than the profile says, as their stage groups see them: tensor ranks meet in every
// layer, so a context rank is as slow as the slowest of them. Context ranks have rows of their own, and a
// pass of the group takes as long as the one that is last. Where ranks divide experts, all of a group meet,
// and so each is as slow as the slowest.
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
  bool AnyOf(int replica) const;
  // Of a context rank; at least 1.
  double FactorOf(int replica, int position, int context) const {
    return any() ? factors_[At(replica, position) + context] : 1;
  }
  // Of the slowest context rank.
  double FactorOf(int replica, int position) const;
  // What all context ranks do together in the time in which as many that are not slow do 1: at most 1.
  double SpeedOf(int replica, int position) const;
  // Whether some group of the replica has context ranks of different speeds: what a pass takes there depends
  // on who has which rows.
  bool IsUneven(int replica) const;
  // What a pass that takes the profile's `ns` takes on a context rank; rounded.
  int64_t Slowed(int64_t ns, int replica, int position, int context) const;

 private:
  size_t At(int replica, int position) const {
    return (static_cast<size_t>(replica) * positions_ + position) * contexts_;
  }
  absl::Span<const double> FactorsOf(int replica, int position) const {
    return {&factors_[At(replica, position)], static_cast<size_t>(contexts_)};
  }

  int positions_;
  int contexts_;
  // By replica, position and context rank; empty: none is slow.
  std::vector<double> factors_;
};

}  // namespace penstock::core
