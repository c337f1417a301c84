// Barriers that are in no trace: operations that ranks began at once although they had ended the one before
// at different times.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// By operation: the one of another rank (or its own) for which it had to wait with all others of its name, -1
// without a barrier. `ready_ns`: by operation, when what it follows on its rank had ended. `step_ns`: what
// the step took.
std::vector<int32_t> ReleasedBy(const TimelineStep& step, const std::vector<int64_t>& ready_ns,
                                int64_t step_ns);

}  // namespace penstock::core
