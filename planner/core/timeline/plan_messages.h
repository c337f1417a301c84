// What ranks sent one another in an iteration, by a plan and the times that they reported.
#pragma once

#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/core/clocks/align_clocks.h"
#include "planner/core/timeline/instruction_time.h"

namespace penstock::core {

// Transfers, and sums of gradients and of the norm, which end on no rank before all have begun.
// `times_by_rank` as in Trace::AddMeasured. Of a group of many ranks each has messages with the first alone.
std::vector<ClockMessage> MessagesOf(const v1::Plan& plan, const TimesByRank& times_by_rank);

}  // namespace penstock::core
