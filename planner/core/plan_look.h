// What a plan is about to take, known to some per cent before it is made: where several ways to train are
// compared. A closer look goes on from a glance.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<core::PlanLook> look, planner.Look(batch));
//   PENSTOCK_ASSIGN_OR_RETURN(const int64_t ns, look->AtNs(Sight::kGlance, run_tasks));
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/core/model/types.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/planner.h"
#include "planner/core/search/policies.h"
#include "planner/core/search/schedule_space.h"
#include "planner/core/search/sight.h"

namespace penstock::core {

class PlanLook {
 public:
  PlanLook(const PlanLook&) = delete;
  PlanLook& operator=(const PlanLook&) = delete;

  // As Planner::LowerBoundNs.
  int64_t BoundNs() const { return planner_.lower_bound_(batch_.samples, stop_); }

  // Nanoseconds. At a glance takes a twentieth of the time of MakePlan or less, where the policy is dynamic,
  // and closer a tenth. Possible errors: RESOURCE_EXHAUSTED (nothing that fits is seen: a plan may be found
  // all the same); CANCELLED.
  absl::StatusOr<int64_t> AtNs(Sight sight, const RunTasks& run_tasks);

 private:
  friend class Planner;
  PlanLook(const Planner& planner, Batch batch, StopToken stop);

  const Planner& planner_;
  const Batch batch_;
  const StopToken stop_;
  const Job job_;
  const ScheduleSpace space_;
  PolicyLook look_;
};

}  // namespace penstock::core
