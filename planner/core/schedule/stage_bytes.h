// The conservative account of memory that searches use: it counts transfer buffers of the neighbours of a
// micro-batch as if all were alive together. The exact one is that of the programs.
#pragma once

#include <cstdint>

#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// What a micro-batch holds on a stage between its forward and backward pass.
int64_t HeldBytes(const CostModel& costs, int stage, const StageMemory& memory,
                  const StageRecompute& recompute);

// What comes and goes around its passes: the transient peak, the gradients of its backward pass, its output
// until it is sent, and the same buffers of a neighbour that is early or late.
int64_t PassingBytes(const StageMemory& memory);

}  // namespace penstock::core
