#include "planner/cli/local_planning.h"

#include <chrono>
#include <utility>

#include "common/status/status_macros.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::cli {

absl::StatusOr<v1::Plan> PlanAndCheck(const core::Planner& planner, const v1::Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, planner.MakePlan(batch));
  const auto duration = std::chrono::steady_clock::now() - start;
  plan.set_planning_time_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  PENSTOCK_RETURN_IF_ERROR(core::ViolationsToStatus(core::CheckPlan(batch, plan)));
  return plan;
}

}  // namespace penstock::cli
