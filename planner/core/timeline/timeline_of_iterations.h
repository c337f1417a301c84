// Planned iterations and what was reported of them, as a timeline to be diagnosed.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/core/diagnose/timeline.h"
#include "planner/core/timeline/measured_iteration.h"

namespace penstock::core {

// Clocks are put right (aligned_times.h). What was foreseen of passes is that of a rank as fast as its peers:
// ranks that the costs of a plan call slow are told apart by it. Possible errors: those of TimelineBuilder.
absl::StatusOr<Timeline> TimelineOfIterations(absl::Span<const MeasuredIteration> iterations);

}  // namespace penstock::core
