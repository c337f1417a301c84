// The schedule "one forward, one backward" (PipeDream-Flush; Narayanan et al. 2021, "Memory-Efficient
// Pipeline-Parallel DNN Training"): a stage runs (stages - stage) forward passes ahead, then alternates.
#pragma once

#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// The schedule without regard to memory.
void MakeOneForwardOneBackward(int stages, int micro_batches, PassOrder* order);

}  // namespace penstock::core
