// The planner core behind the interfaces of the engine.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/core/parallel/run_tasks.h"
#include "planner/service/engine/batch_planner.h"

namespace penstock {

// Planners of planner/core.
class CorePlannerFactory final : public BatchPlannerFactory {
 public:
  // `run_tasks` may run the tasks of a plan on other threads, and those of several plans at a time. What it
  // needs must outlive the planners. `devices`: what simulated devices take, and of which model, where that
  // is not what jobs say; Check refuses simulated jobs of other models.
  explicit CorePlannerFactory(core::RunTasks run_tasks = core::RunSerially,
                              std::optional<v1::ProfileFile> devices = std::nullopt)
      : run_tasks_(std::move(run_tasks)), devices_(std::move(devices)) {}

  absl::Status Check(const v1::JobSpec& job) const override;
  absl::StatusOr<core::PlanningShape> ShapeOf(const v1::JobSpec& job, const v1::Batch* batch) const override;
  absl::StatusOr<std::unique_ptr<BatchPlanner>> Create(const v1::JobSpec& job,
                                                       absl::Span<const v1::Topology> topologies,
                                                       absl::Span<const uint32_t> strategies,
                                                       core::StopToken stop) const override;
  // Of a job with strategies, from the iterations of the one that ran most often.
  absl::StatusOr<std::optional<core::Calibration>> Calibrate(const v1::JobSpec& job,
                                                             absl::Span<const v1::Topology> topologies,
                                                             const v1::CostProfile& in_effect,
                                                             const std::vector<HeldIteration>& iterations,
                                                             core::StopToken stop) const override;
  absl::StatusOr<v1::JobDiagnosis> Diagnose(const std::vector<CostedIteration>& iterations,
                                            core::StopToken stop) const override;
  absl::StatusOr<core::Calibration> CalibratePasses(const v1::ReviseCostsRequest& request,
                                                    core::StopToken stop) const override;

 private:
  const core::RunTasks run_tasks_;
  const std::optional<v1::ProfileFile> devices_;
};

// The checker of planner/core/verify.
class CorePlanChecker final : public PlanChecker {
 public:
  absl::Status Check(const v1::Batch& batch, const v1::Plan& plan, core::StopToken stop) const override;
};

}  // namespace penstock
