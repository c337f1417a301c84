// What plans would save whose costs are those that were measured.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/job.pb.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// The share of the iterations' time, 0 at least: costs are fitted to the iterations, their batches planned
// anew with them, on stages that are chosen with them where the job leaves that open, and what both plans
// take by these costs is compared. `in_effect`: the costs that the iterations were planned with. Of jobs with
// one mesh; of others 0, as where costs are right. Possible errors: those of Calibrate and of planning.
absl::StatusOr<double> GainOfRightCosts(const v1::JobSpec& job, const v1::CostProfile& in_effect,
                                        absl::Span<const ObservedIteration> iterations,
                                        const RunTasks& run_tasks, StopToken stop = {});

}  // namespace penstock::core
