// Limits of memory that differ by rank, where ranks change their numbers.
//
//   KeepRankMemory(8, 4, &planning);  // what is said of ranks 8 to 11, now 0 to 3
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/mesh/mesh_ranks.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Of ranks that PlanningOptions.rank_memory_limits does not name; 0: unknown.
inline int64_t CommonMemoryLimit(const v1::JobSpec& job) {
  const int64_t limit = job.planning().memory_limit_bytes();
  return limit != 0 ? limit : job.profile().cluster().memory_bytes();
}

// Keeps the limits of the ranks [first_rank, first_rank + ranks), numbered from 0.
inline void KeepRankMemory(int64_t first_rank, int64_t ranks, v1::PlanningOptions* planning) {
  v1::PlanningOptions all;
  all.mutable_rank_memory_limits()->Swap(planning->mutable_rank_memory_limits());
  for (const v1::RankMemoryLimit& limit : all.rank_memory_limits()) {
    const int64_t rank = int64_t{limit.rank()} - first_rank;
    if (rank < 0 || rank >= ranks) continue;
    v1::RankMemoryLimit* own = planning->add_rank_memory_limits();
    *own = limit;
    own->set_rank(static_cast<uint32_t>(rank));
  }
}

// Gives every rank the least limit that one has: where nobody knows which of them a rank will be.
inline void UseLeastMemory(v1::JobSpec* job) {
  v1::PlanningOptions& planning = *job->mutable_planning();
  if (planning.rank_memory_limits().empty()) return;
  // Where all ranks are named no rank has the common one.
  const bool all = static_cast<uint64_t>(planning.rank_memory_limits_size()) >= RanksOf(*job);
  int64_t least = all ? planning.rank_memory_limits(0).bytes() : CommonMemoryLimit(*job);
  for (const v1::RankMemoryLimit& limit : planning.rank_memory_limits())
    least = std::min(least, limit.bytes());
  planning.set_memory_limit_bytes(least);
  planning.clear_rank_memory_limits();
}

}  // namespace penstock::core
