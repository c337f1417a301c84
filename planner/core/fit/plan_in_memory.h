// From a job and its samples to programs that fit in memory.
//
// A search counts memory without the transfers that are under way; the programs count exactly. Where they
// need more than there is: first some layers are recomputed (free_memory.h), then the passes are put in order
// with less memory, then others are searched for. If all that fails, the search begins anew with more
// caution, then with less memory than there is, and at last with the most recompute and no regard to memory:
// then the programs alone judge, and layers that they have room for are kept after all. So no limit is
// refused at which the plan that would be made with plenty of memory and full recompute fits. What came about
// so is improved by a local search that asks the programs about every change. Where the profile says of
// noise, the passes of what the search has found run in orders that it hurts less (search/steady_orders.h),
// if the programs fit so.
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
