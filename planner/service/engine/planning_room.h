// Whether a batch may be planned at all: what it takes, against what this planner has.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "planner/core/footprint/planning_footprint.h"

namespace penstock {

// Possible errors: INVALID_ARGUMENT (it never fits; names what does not, and the largest batch of such
// lengths that does). `what`: the field, "batch.samples".
absl::Status CheckRoom(absl::string_view what, const core::PlanningShape& shape,
                       const core::PlanningRoom& room);

}  // namespace penstock
