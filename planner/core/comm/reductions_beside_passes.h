// What the last passes of stages leave of REDUCE_GRADIENTS (execution.md, section 7).
#pragma once

#include "planner/core/cost/cost_model.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {

// By the durations that the passes of all ranks have. Does nothing where all of a reduction comes behind its
// last pass.
void SetReduceDurations(const CostModel& costs, ProgramSet* programs);

}  // namespace penstock::core
