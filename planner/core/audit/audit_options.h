// Whether a plan is one that its own options allow (execution.md, section 12, rule 9).
#pragma once

#include "penstock/v1/plan.pb.h"
#include "planner/core/audit/audit_list.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// `job` is what plan.options say, `batch` the plan's. Adds what schedule, layouts, sizes of micro-batches and
// recompute have that the options exclude.
void AuditOptions(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs,
                  AuditList* list);

}  // namespace penstock::core
