// Makes a plan and has it checked: the one way in which plans come into being in the service.
#pragma once

#include "absl/status/statusor.h"
#include "planner/service/engine/batch_planner.h"
#include "planner/service/engine/clock.h"
#include "planner/service/engine/observer.h"

namespace penstock {

// Computes for milliseconds to seconds; sets planning_time_ns, and tells the observer.
// Possible errors: as BatchPlanner::MakePlan, CANCELLED (`stop` says so) and INTERNAL (the checker found a
// violation; it is logged). `made`: null, or set to the time of day when the plan was made and its check
// began.
absl::StatusOr<v1::Plan> MakeCheckedPlan(const BatchPlanner& planner, const PlanChecker& checker,
                                         const v1::Batch& batch, core::StopToken stop,
                                         const SteadyClock& clock, EngineObserver& observer,
                                         absl::Time* made = nullptr);

}  // namespace penstock
