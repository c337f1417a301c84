// A profile as a mesh sees it that is one of several side by side.
//
//   KeepRanks(8, 4, &profile);  // what is said of ranks 8 to 11, now 0 to 3, and of links between them
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

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

// Keeps the slow links between these ranks likewise.
inline void KeepSlowLinks(int64_t first_rank, int64_t ranks, v1::CostProfile* profile) {
  v1::CostProfile all;
  all.mutable_slow_links()->Swap(profile->mutable_slow_links());
  const auto is_own = [&](int64_t rank) { return rank >= first_rank && rank < first_rank + ranks; };
  for (const v1::SlowLink& slow : all.slow_links()) {
    if (!is_own(slow.from()) || !is_own(slow.to())) continue;
    v1::SlowLink* own = profile->add_slow_links();
    *own = slow;
    own->set_from(static_cast<uint32_t>(slow.from() - first_rank));
    own->set_to(static_cast<uint32_t>(slow.to() - first_rank));
  }
}

// Slow ranks and links of `profile`, which are among [first_rank, first_rank + ranks) numbered from 0, get
// their own numbers back, and all others of `all` beside them. The other way round than KeepRanks.
inline void ReturnRanks(int64_t first_rank, int64_t ranks, const v1::CostProfile& all,
                        v1::CostProfile* profile) {
  const auto is_own = [&](int64_t rank) { return rank >= first_rank && rank < first_rank + ranks; };
  const auto first = static_cast<uint32_t>(first_rank);
  for (v1::SlowRank& slow : *profile->mutable_slow_ranks()) slow.set_rank(slow.rank() + first);
  for (v1::SlowLink& slow : *profile->mutable_slow_links()) {
    slow.set_from(slow.from() + first);
    slow.set_to(slow.to() + first);
  }
  for (const v1::SlowRank& slow : all.slow_ranks())
    if (!is_own(slow.rank())) *profile->add_slow_ranks() = slow;
  for (const v1::SlowLink& slow : all.slow_links())
    if (!is_own(slow.from()) || !is_own(slow.to())) *profile->add_slow_links() = slow;
  std::ranges::sort(*profile->mutable_slow_ranks(), {}, &v1::SlowRank::rank);
  std::ranges::sort(*profile->mutable_slow_links(), {},
                    [](const v1::SlowLink& slow) { return std::pair(slow.from(), slow.to()); });
}

inline void KeepRanks(int64_t first_rank, int64_t ranks, v1::CostProfile* profile) {
  KeepSlowRanks(first_rank, ranks, profile);
  KeepSlowLinks(first_rank, ranks, profile);
}

}  // namespace penstock::core
