// The planner core behind the interfaces of the engine.
#pragma once

#include <memory>

#include "planner/service/engine/batch_planner.h"

namespace penstock {

// Planners of planner/core.
class CorePlannerFactory final : public BatchPlannerFactory {
 public:
  absl::StatusOr<std::unique_ptr<BatchPlanner>> Create(const v1::JobSpec& job) const override;
};

// The checker of planner/core/verify.
class CorePlanChecker final : public PlanChecker {
 public:
  absl::Status Check(const v1::Batch& batch, const v1::Plan& plan) const override;
};

}  // namespace penstock
