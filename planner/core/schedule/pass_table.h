// What the passes of one replica take, as flat arrays for schedulers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"

namespace penstock::core {

// What a replica that cannot run is said to take.
inline constexpr int64_t kInfeasibleNs = int64_t{1} << 61;

// Times and bytes of the micro-batches of one replica on each stage. Micro-batch m on stage s is at
// [rows[m] + s] of every array, so that the arrays of a table can be used in place.
struct PassTable {
  int stages = 0;
  int ranks = 0;
  absl::Span<const int32_t> rows;
  const int64_t* forward_ns = nullptr;
  // The whole backward pass, and the part of it that may be delayed.
  const int64_t* backward_ns = nullptr;
  const int64_t* weight_ns = nullptr;
  // For each stage, of the activation that leaves it and its gradient: [rows[m] + s] of transfer_ns[s].
  const int64_t* const* transfer_ns = nullptr;
  // Of the activation that is received: from when it is sent to the backward pass; part of held_bytes.
  const int64_t* input_bytes = nullptr;
  // Between forward and backward pass; between BACKWARD_INPUT and BACKWARD_WEIGHT; only around a pass.
  const int64_t* held_bytes = nullptr;
  const int64_t* put_aside_bytes = nullptr;
  const int64_t* passing_bytes = nullptr;
  // For each rank.
  const int64_t* available_bytes = nullptr;
  // For each stage: the reduction of its gradients over the replicas. For each rank: the optimizer step.
  const int64_t* reduce_ns = nullptr;
  const int64_t* optimizer_ns = nullptr;
};

// End of the iteration on all ranks of a replica, as far as it depends on no other one: gradients of a stage
// are reduced after its last pass, those of one rank one after the other, the last stage first; then comes
// the optimizer step. `last_pass_ns`: of each stage. `rank_end_ns`: scratch, one for each rank.
inline int64_t EndOfIteration(const PassTable& table, absl::Span<const int32_t> rank_of_stage,
                              absl::Span<const int64_t> last_pass_ns, absl::Span<int64_t> rank_end_ns) {
  std::fill(rank_end_ns.begin(), rank_end_ns.end(), 0);
  for (int stage = table.stages - 1; stage >= 0; --stage) {
    int64_t& end = rank_end_ns[rank_of_stage[stage]];
    end = std::max(end, last_pass_ns[stage]) + table.reduce_ns[stage];
  }
  int64_t all = 0;
  for (size_t rank = 0; rank < rank_end_ns.size(); ++rank) {
    all = std::max(all, rank_end_ns[rank] + table.optimizer_ns[rank]);
  }
  return all;
}

// When a link is busy.
struct Interval {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// A rank's link to the rank of a next stage, or to that of a previous one: one transfer at a time. Its last
// transfers of activations and of gradients.
struct LinkEnd {
  Interval last[2];
};
enum TransferDirection : int { kActivations = 0, kGradients = 1 };

// Books a transfer at both its ends: after the last ones in the same direction, and not during the last ones
// in the other. Returns when it ends.
inline int64_t BookTransfer(int64_t ready_ns, int64_t duration_ns, TransferDirection direction,
                            LinkEnd* lower, LinkEnd* upper) {
  if (duration_ns == 0) return ready_ns;
  int64_t start = std::max({ready_ns, lower->last[direction].end_ns, upper->last[direction].end_ns});
  const int other = 1 - direction;
  // Moving behind one of the two may run into the other.
  for (const LinkEnd* end : {lower, upper, lower}) {
    const Interval& busy = end->last[other];
    if (start < busy.end_ns && start + duration_ns > busy.start_ns) start = busy.end_ns;
  }
  lower->last[direction] = upper->last[direction] = {start, start + duration_ns};
  return start + duration_ns;
}

}  // namespace penstock::core
