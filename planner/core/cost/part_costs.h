// What a part of a micro-batch takes in a layer where ranks divide experts, and what a rank waits for rows
// while it goes through the parts in turn (execution.md, section 7, "Parts").
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/stage.h"

namespace penstock::core {

// Of one layer, whole nanoseconds.
struct PartCosts {
  struct Layer {
    int64_t forward_ns = 0;
    std::array<int64_t, kRecomputeLevels> backward_ns = {};
    // Of that, products for all weights.
    int64_t weights_ns = 0;
    // Gathers and sums over tensor ranks, without those of a layer that runs again.
    int64_t tensor_forward_ns = 0;
    int64_t tensor_backward_ns = 0;
  };
  Layer with_experts;
  // All 0 where every layer has experts.
  Layer dense;
  // Experts forward, and backward for their rows and for their weights each.
  int64_t experts_ns = 0;
  // Rows once to experts on other ranks, or back; their gradients.
  int64_t rows_ns = 0;
  int64_t row_gradients_ns = 0;
  // Keys and values of divided rows that attention does not hide.
  int64_t context_forward_ns = 0;
  std::array<int64_t, kRecomputeLevels> context_backward_ns = {};
};

// In a forward pass, and in a whole backward pass or BACKWARD_INPUT.
int64_t ForwardWaitingNs(const Stage& stage, absl::Span<const PartCosts> parts);
int64_t BackwardWaitingNs(const Stage& stage, const StageRecompute& recompute,
                          absl::Span<const PartCosts> parts);

}  // namespace penstock::core
