// Costs fitted to iterations of a job with strategies (core/calibrate fits those of one mesh).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/job.pb.h"
#include "planner/core/calibrate/calibration.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// As Calibrate, of iterations that ran on one strategy of the job; `stages`: those of its plans. Of several
// meshes side by side costs are fitted to the one that the others waited for most: its iterations are as long
// as its own passes make them. Ranks and links that are slow are told of that mesh; what is known of the
// others stays.
absl::StatusOr<std::optional<Calibration>> CalibrateStrategy(const v1::JobSpec& job, int strategy,
                                                             const v1::Topology& stages,
                                                             const v1::CostProfile& in_effect,
                                                             absl::Span<const ObservedIteration> iterations,
                                                             const RunTasks& run_tasks, StopToken stop = {});

}  // namespace penstock::core
