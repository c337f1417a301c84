// What planning a batch will be like, told from its lengths before it is planned: its shape, from which
// follows how much memory it takes (footprint/planning_footprint.h), and what planning keeps to, so that it
// takes no more.
#pragma once

#include "planner/core/cost/cost_model.h"
#include "planner/core/footprint/planning_footprint.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// Linear in the samples, and for large batches of a policy that tries sizes as long as ForeseeSize, some
// 10 ms.
PlanningShape ShapeOfBatch(const Job& job, const CostModel& costs, const Batch& batch);

// The job, with the micro-batches that are foreseen for the batch, and the most that a plan of it may have.
Job AsForeseen(const Job& job, const CostModel& costs, const Batch& batch);

}  // namespace penstock::core
