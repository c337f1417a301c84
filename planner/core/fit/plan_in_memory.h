// From a job and its samples to programs that fit in memory.
//
// A search counts memory without the transfers that are under way; the programs count exactly. Where they
// need more than there is: first some layers are recomputed (free_memory.h), then the passes are put in order
// with less memory, then others are searched for. If all that fails, the search begins anew with more
// caution, and then with less memory than there is. What came about so is improved by a local search that
// asks the programs about every change. Where the profile says of noise, the passes of what the search has
// found run in orders that it hurts less (search/steady_orders.h), if the programs fit so.
//
// Before a refusal under recompute auto all that is done with full recompute, too; at last the search has no
// regard to memory and the programs alone judge. Layers that they have room for are then kept after all. So
// no limit is refused at which the job has a plan with full recompute, or the plan fits that it has with full
// recompute and plenty of memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/search/candidate.h"

namespace penstock::core {

// What a search has found, and its programs.
struct FittedPlan {
  Candidate candidate;
  std::vector<ReplicaPipeline> pipelines;
  ProgramSet programs;
};

// Possible errors: RESOURCE_EXHAUSTED (every sample fits alone, but no plan is found that does: says what
// does not); INTERNAL (our bug); CANCELLED (`stop` says so). `samples` must outlive the result; without any,
// all replicas are without micro-batches.
absl::StatusOr<FittedPlan> PlanInMemory(const CostModel& costs, const Job& job,
                                        absl::Span<const SampleTokens> samples, const RunTasks& run_tasks,
                                        StopToken stop = {});

}  // namespace penstock::core
