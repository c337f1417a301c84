// The rules, one function and one file each. Every function adds what it finds to the report.
#pragma once

#include "penstock/v1/plan.pb.h"
#include "planner/core/verify/plan_index.h"
#include "planner/core/verify/report.h"

namespace penstock::core::verify {

// Rule 0. Returns false when the plan cannot be judged further.
bool CheckStructure(const v1::Batch& batch, const v1::Plan& plan, Report& report);

// Part of rule 0, after sizes: who is where. Returns false when the plan cannot be judged further.
bool CheckTopology(const v1::Plan& plan, Report& report);

// Part of rule 0: instructions have the messages of their op and no others.
void CheckFields(const v1::Plan& plan, Report& report);
// Part of rule 0: the content hash is that of the plan.
void CheckContentHash(const v1::Plan& plan, Report& report);

// Part of rule 0: a plan has a validation where its batch has one, which is of the same job and model.
void CheckValidation(const v1::Batch& batch, const v1::Plan& plan, Report& report);

// Rules 1 to 8, each independent of the others.
void CheckCoverage(const PlanIndex& index, Report& report);
void CheckTransfers(const PlanIndex& index, Report& report);
void CheckDependencies(const PlanIndex& index, Report& report);
void CheckLifecycle(const PlanIndex& index, Report& report);
void CheckCollectives(const PlanIndex& index, Report& report);
void CheckMemory(const PlanIndex& index, Report& report);
void CheckTokens(const PlanIndex& index, Report& report);
void CheckPredictions(const PlanIndex& index, Report& report);

// Part of rule 4: the programs belong to the family of schedules that the plan names.
void CheckSchedule(const PlanIndex& index, Report& report);
// Part of rules 3 and 6: every WAIT and FREE has what it waits for, or gives back, and the bytes that the
// plan alone decides are right.
void CheckBuffers(const PlanIndex& index, Report& report);

// Parts of rules 5 and 8: what passes of stage groups of several ranks exchange, and how long they take.
void CheckJointPasses(const PlanIndex& index, Report& report);
// Part of rule 7: every token of every row is on one context rank.
void CheckSpans(const PlanIndex& index, Report& report);
// Part of rule 7: every row is in one of the parts that passes go through in turn.
void CheckParts(const PlanIndex& index, Report& report);

// Rules 2 and 5: runs every rank's list one instruction at a time, where a transfer ends only when both ends
// are at it and a collective only when all its ranks are. Reports each rank that never reaches its end, and
// whom it waits for.
void CheckRendezvous(const PlanIndex& index, Report& report);

}  // namespace penstock::core::verify
