// How much memory ranks have (PlanningOptions.memory_limit_bytes and rank_memory_limits).
//
//   if (peak_bytes > job.memory_limits.Of(rank)) ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::core {

struct MemoryLimits {
  // Of every rank, where they are alike.
  int64_t common = 0;
  // Of the topology's ranks; empty: they are alike.
  std::vector<int64_t> of_ranks = {};

  bool alike() const { return of_ranks.empty(); }
  int64_t Of(int rank) const { return alike() ? common : of_ranks[rank]; }
  int64_t Most() const { return alike() ? common : *std::max_element(of_ranks.begin(), of_ranks.end()); }

  // The same with so much less on every rank.
  MemoryLimits Without(int64_t bytes) const {
    MemoryLimits less = *this;
    less.common -= bytes;
    for (int64_t& limit : less.of_ranks) limit -= bytes;
    return less;
  }
  // This share of every rank's.
  MemoryLimits Share(double share) const {
    const auto part = [share](int64_t bytes) {
      return static_cast<int64_t>(static_cast<double>(bytes) * share);
    };
    MemoryLimits parts = {.common = part(common)};
    for (const int64_t limit : of_ranks) parts.of_ranks.push_back(part(limit));
    return parts;
  }
};

}  // namespace penstock::core
