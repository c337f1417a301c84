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
  const int32_t* rank_of_stage = nullptr;
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
};

// When a link is busy.
struct Interval {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// Books a link: after the last transfer in the same direction (`own`), and not during the last one in the
// other. Returns when the transfer ends.
inline int64_t BookLink(int64_t ready_ns, int64_t duration_ns, const Interval& other, Interval* own) {
  int64_t start = std::max(ready_ns, own->end_ns);
  if (start < other.end_ns && start + duration_ns > other.start_ns) start = other.end_ns;
  *own = {start, start + duration_ns};
  return own->end_ns;
}

}  // namespace penstock::core
