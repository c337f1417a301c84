// One line on an iteration: what was planned and what the ranks measured. Pure.
#pragma once

#include <vector>

#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// `reports`: one of each rank, in rank order. loss: sum over ranks. measured: the slowest rank. bubble: the
// share of ranks x measured that is not spent in FORWARD, BACKWARD (whole or split), RECOMPUTE and
// OPTIMIZER_STEP; predicted_bubble: the same of the plan's durations and makespan. `planned_ahead` is left to
// the caller.
v1::IterationSummary Summarize(const v1::Plan& plan, const std::vector<v1::ReportIterationRequest>& reports);

}  // namespace penstock
