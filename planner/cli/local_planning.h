// Plans in this process, and proves every plan before anybody sees it.
#pragma once

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/planner.h"

namespace penstock::cli {

// Plans the batch, sets planning_time_ns and runs the checker.
// Possible errors: INVALID_ARGUMENT (the batch), RESOURCE_EXHAUSTED (no plan fits in memory), INTERNAL (the
// plan breaks a rule).
absl::StatusOr<v1::Plan> PlanAndCheck(const core::Planner& planner, const v1::Batch& batch);

}  // namespace penstock::cli
