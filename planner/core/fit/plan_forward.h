// From a job and its samples to programs of forward passes alone, which learn nothing: what validation runs.
//
// Micro-batches are those that would be trained on: the same search, with the same costs. Every rank runs
// them in the order in which they enter the pipeline; one that has several stages runs the upper ones first,
// as far as there is something to run.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/core/fit/plan_in_memory.h"

namespace penstock::core {

// As PlanInMemory. RESOURCE_EXHAUSTED, too, where the forward passes alone do not fit (they take less than
// training does, but for layers of which nothing is kept).
absl::StatusOr<FittedPlan> PlanForward(const CostModel& costs, const Job& job,
                                       absl::Span<const SampleTokens> samples, const RunTasks& run_tasks,
                                       StopToken stop = {});

}  // namespace penstock::core
