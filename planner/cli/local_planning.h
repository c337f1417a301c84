// Plans in this process, and proves every plan before anybody sees it.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/planner.h"
#include "planner/core/strategies/strategy_planner.h"

namespace CLI {
class App;
}

namespace penstock::cli {

// --threads: how many plan here. `threads` becomes what the machine runs at once.
void AddThreadsFlag(CLI::App& command, int& threads);

// Plans the batch and runs the checker; planning_time_ns is the time of both, as in the service. `run_tasks`
// may use threads: the plan is the same.
// Possible errors: INVALID_ARGUMENT (the batch), RESOURCE_EXHAUSTED (no plan fits in memory), INTERNAL (the
// plan breaks a rule).
absl::StatusOr<v1::Plan> PlanAndCheck(const core::StrategyPlanner& planner, const v1::Batch& batch,
                                      const core::RunTasks& run_tasks = core::RunSerially);
absl::StatusOr<v1::Plan> PlanAndCheck(const core::Planner& planner, const v1::Batch& batch,
                                      const core::RunTasks& run_tasks = core::RunSerially);

// Whether a batch that was not planned cannot be, under these options: a result, where several are tried.
bool IsInfeasible(const absl::Status& planned);

}  // namespace penstock::cli
