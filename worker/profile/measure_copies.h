// How fast a rank puts into one piece what layers kept of the parts of a micro-batch: for backward passes
// that are whole behind forward passes in parts (execution.md, section 7, "Whole backward passes").
#pragma once

#include "absl/status/statusor.h"
#include "worker/profile/measured_device.h"

namespace penstock::worker {

// Bytes a second, each read once and written once: half of them end to end, as tokens lie, half row by row to
// other places, as rows of experts. Well under a second. Possible errors: RESOURCE_EXHAUSTED (memory),
// INTERNAL.
absl::StatusOr<double> MeasureCopies(const MeasuredDevice& device);

}  // namespace penstock::worker
