// What is kept of a plan and of a rank's report, and the summary of an iteration that follows from them.
#pragma once

#include <vector>

#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// `waiting_share`: of what computing takes in the plan, what is really waiting (CostProfile).
store::v1::IterationPlanned FiguresOf(const v1::Plan& plan, double waiting_share);
// `ops`: of the rank's program, whose instructions the report names, by id.
store::v1::IterationReported FiguresOf(const std::vector<v1::Op>& ops,
                                       const v1::ReportIterationRequest& report);

// `reports`: of all ranks. planned_ahead is left 0, and expert_layers are left to ExpertLayersOf.
v1::IterationSummary Summarize(const store::v1::IterationPlanned& plan,
                               const std::vector<store::v1::IterationReported>& reports);

}  // namespace penstock
