// What the REDUCE_GRADIENTS of a plan take (execution.md, section 7).
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// Of each stage, and in it of each tensor rank, by the durations that the plan gives passes. The plan's
// topology must be that of `costs`.
std::vector<int64_t> ReduceDurationsOf(const v1::Plan& plan, const CostModel& costs);

}  // namespace penstock::core
