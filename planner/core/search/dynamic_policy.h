// The dynamic policy: micro-batches by predicted time.
//
// Padded: for a range of bounds on the time of one micro-batch, the dynamic programme over samples in order
// of length. Packed: for a range of numbers of micro-batches, samples balanced over them by time. Each gives
// a candidate; the best by simulated makespan are refined by local search.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/search/candidate.h"

namespace penstock::core {

Candidate PlanDynamic(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                      const RunTasks& run_tasks);

// That its local search simulates in all.
int64_t RefinementPasses(const ScheduleSpace& space, const Job& job, size_t samples);

}  // namespace penstock::core
