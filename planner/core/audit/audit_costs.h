// Whether durations, bytes and what is exchanged inside passes are those of the cost profile (execution.md,
// sections 7 and 8).
#pragma once

#include "penstock/v1/plan.pb.h"
#include "planner/core/audit/audit_list.h"
#include "planner/core/contract/reshard_durations.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// The topology of the plan must be that of `job`. `reshards`: with all meshes where there are
// several.
void AuditCosts(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs,
                const ReshardDurations& reshards, AuditList* list);

}  // namespace penstock::core
