#include "planner/cli/local_planning.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <utility>

#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::cli {

void AddThreadsFlag(CLI::App& command, int& threads) {
  threads = DefaultThreads();
  command.add_option("--threads", threads, "Threads that plan here (all that the machine runs at once)")
      ->check(CLI::Range(1, 1024));
}

namespace {

template <typename AnyPlanner>
absl::StatusOr<v1::Plan> PlanAndCheckWith(const AnyPlanner& planner, const v1::Batch& batch,
                                          const core::RunTasks& run_tasks) {
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, planner.MakePlan(batch, run_tasks));
  PENSTOCK_RETURN_IF_ERROR(core::ViolationsToStatus(core::CheckPlan(batch, plan)));
  const auto duration = std::chrono::steady_clock::now() - start;
  plan.set_planning_time_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  return plan;
}

}  // namespace

absl::StatusOr<v1::Plan> PlanAndCheck(const core::StrategyPlanner& planner, const v1::Batch& batch,
                                      const core::RunTasks& run_tasks) {
  return PlanAndCheckWith(planner, batch, run_tasks);
}

absl::StatusOr<v1::Plan> PlanAndCheck(const core::Planner& planner, const v1::Batch& batch,
                                      const core::RunTasks& run_tasks) {
  return PlanAndCheckWith(planner, batch, run_tasks);
}

bool IsInfeasible(const absl::Status& planned) {
  return absl::IsResourceExhausted(planned) || absl::IsInvalidArgument(planned);
}

}  // namespace penstock::cli
