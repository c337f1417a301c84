// A plan's programs as the simulator runs them.
#pragma once

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {

// Instructions in the order of the plan, rank by rank: with its expected durations, without memory. Possible
// errors: INVALID_ARGUMENT (an instruction that no plan of ours has, named; a transfer without its other
// end).
absl::StatusOr<ProgramSet> ProgramSetOfPlan(const v1::Plan& plan);

}  // namespace penstock::core
