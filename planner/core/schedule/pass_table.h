// What the passes of one replica take, as flat arrays for schedulers.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace penstock::core {

// What a replica that cannot run is said to take.
inline constexpr int64_t kInfeasibleNs = int64_t{1} << 61;

// Times and bytes of the micro-batches of one replica on each stage. Micro-batch m on stage s is at
// [rows[m] + s] of every array, so that the arrays of a table can be used in place.
struct PassTable {
  int stages = 0;
  int positions = 0;
  absl::Span<const int32_t> rows;
  const int64_t* forward_ns = nullptr;
  // The whole backward pass, and the part of it that may be delayed.
  const int64_t* backward_ns = nullptr;
  const int64_t* weight_ns = nullptr;
  // For each stage, of the activation that leaves it, and of its gradient that comes back: [rows[m] + s] of
  // transfer_ns[s]. The same but over links that are slow.
  const int64_t* const* transfer_ns = nullptr;
  const int64_t* const* gradient_transfer_ns = nullptr;
  // Of the activation that is received: from when it is sent to the backward pass; part of held_bytes.
  const int64_t* input_bytes = nullptr;
  // Between forward and backward pass; between BACKWARD_INPUT and BACKWARD_WEIGHT; only around a forward
  // pass; only around a backward pass.
  const int64_t* held_bytes = nullptr;
  const int64_t* put_aside_bytes = nullptr;
  const int64_t* forward_passing_bytes = nullptr;
  const int64_t* passing_bytes = nullptr;
  // For each rank.
  const int64_t* available_bytes = nullptr;
  // For each stage: the reduction of its gradients over the replicas. For each rank: the optimizer step.
  const int64_t* reduce_ns = nullptr;
  const int64_t* optimizer_ns = nullptr;
};

}  // namespace penstock::core
