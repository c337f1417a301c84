// A pool of strategies for what a run trains on now, beside what it runs on: whether lengths have drifted
// from those that its strategies are for, and what would be gained by others.
#pragma once

#include "absl/status/statusor.h"
#include "common/parallel/task_pool.h"
#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/advise/strategy_pool.h"

namespace penstock::cli {

struct RunPoolAdvice {
  StrategyPool pool;
  // Means over the run's batches: of the run as it is, and with the pool in place of its strategies or mesh,
  // both as the job is planned (its effort, its choices).
  double present_ms = 0;
  double pool_ms = 0;
};

// Of at most so many strategies, with as many ranks as the run has and the costs that it measured. Possible
// errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (the run's own batches cannot be planned: says why), those of
// ProposePool.
absl::StatusOr<RunPoolAdvice> AdviseRunPool(const MeasuredRun& run, const Given& given, int strategies,
                                            TaskPool* threads);

}  // namespace penstock::cli
