// How large each rank's share of the parameters is beside the others' (PlanningOptions.share_weights;
// execution.md, section 5).
//
//   const ShareWeights weights = ShareWeightsOf(all, world.first_rank, topology.ranks());
//   double bytes = parameter_bytes * weights.Of(rank) / weights.AllOf(ranks);
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/types/span.h"

namespace penstock::core {

struct ShareWeights {
  // Of the topology's ranks, without a common divisor of those of all ranks of the job. Empty: all ranks of
  // the job are alike.
  std::vector<int64_t> of_ranks;
  // Of all ranks of the job.
  int64_t all = 0;

  bool alike() const { return of_ranks.empty(); }
  int64_t Of(int rank) const { return alike() ? 1 : of_ranks[rank]; }
  // Of the topology's ranks, which are so many.
  int64_t SumOf(int ranks) const {
    return alike() ? ranks : std::accumulate(of_ranks.begin(), of_ranks.end(), int64_t{0});
  }
  // Of the job's ranks, which are so many.
  int64_t AllOf(int64_t ranks) const { return alike() ? ranks : all; }
};

// Of the ranks [first_rank, first_rank + ranks) of a job whose ranks have `all`, of which one at least is not
// 0. Empty ones are alike.
ShareWeights ShareWeightsOf(absl::Span<const uint32_t> all, int first_rank, int ranks);

}  // namespace penstock::core
