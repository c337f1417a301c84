#include "planner/service/main/core_backend.h"

#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"

namespace penstock {
namespace {

class CoreBatchPlanner final : public BatchPlanner {
 public:
  CoreBatchPlanner(std::unique_ptr<core::Planner> planner, core::RunTasks run_tasks)
      : planner_(std::move(planner)), run_tasks_(std::move(run_tasks)) {}

  absl::Status CheckBatch(const v1::Batch& batch, core::StopToken stop) const override {
    return planner_->ValidateBatch(batch, core::Planner::Explain::kCauseAlone, stop);
  }
  absl::Status ValidateBatch(const v1::Batch& batch, core::StopToken stop) const override {
    return planner_->ValidateBatch(batch, core::Planner::Explain::kChanges, stop);
  }
  v1::Topology Topology() const override { return planner_->topology(); }
  absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, core::StopToken stop) const override {
    return planner_->MakePlan(batch, run_tasks_, stop);
  }

 private:
  const std::unique_ptr<core::Planner> planner_;
  const core::RunTasks run_tasks_;
};

// To a gRPC client UNIMPLEMENTED would mean that the server lacks the method.
absl::Status AsInvalid(const absl::Status& status) {
  return absl::IsUnimplemented(status) ? absl::InvalidArgumentError(status.message()) : status;
}

}  // namespace

absl::Status CorePlannerFactory::Check(const v1::JobSpec& job) const {
  return AsInvalid(core::Planner::CheckJob(job));
}

absl::StatusOr<std::unique_ptr<BatchPlanner>> CorePlannerFactory::Create(const v1::JobSpec& job,
                                                                         const v1::Topology* topology,
                                                                         core::StopToken stop) const {
  absl::StatusOr<std::unique_ptr<core::Planner>> planner =
      core::Planner::Create(job, core::Planner::Explain::kChanges, run_tasks_, stop, topology);
  if (!planner.ok()) return AsInvalid(planner.status());
  return std::make_unique<CoreBatchPlanner>(*std::move(planner), run_tasks_);
}

absl::Status CorePlanChecker::Check(const v1::Batch& batch, const v1::Plan& plan,
                                    core::StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<core::Violation> violations,
                            core::CheckPlan(batch, plan, stop));
  return core::ViolationsToStatus(violations);
}

}  // namespace penstock
