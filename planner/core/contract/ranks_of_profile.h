// A profile as a mesh sees it that is one of several side by side.
#pragma once

#include <cstdint>

#include "penstock/v1/cost_profile.pb.h"

namespace penstock::core {

// Keeps the slow ranks [first_rank, first_rank + ranks), numbered from 0.
inline void KeepSlowRanks(int64_t first_rank, int64_t ranks, v1::CostProfile* profile) {
  v1::CostProfile all;
  all.mutable_slow_ranks()->Swap(profile->mutable_slow_ranks());
  for (const v1::SlowRank& slow : all.slow_ranks()) {
    const int64_t rank = int64_t{slow.rank()} - first_rank;
    if (rank < 0 || rank >= ranks) continue;
    v1::SlowRank* own = profile->add_slow_ranks();
    *own = slow;
    own->set_rank(static_cast<uint32_t>(rank));
  }
}

}  // namespace penstock::core
