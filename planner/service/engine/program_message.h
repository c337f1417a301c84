// What the stream of a rank sends for one iteration. Pure.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// `rank` is one of plan.programs. `profile_durations`: see StreamProgramsResponse.profile_duration_ns; empty:
// none.
v1::StreamProgramsResponse MakeProgramMessage(const v1::Batch& batch, const v1::Plan& plan, uint32_t rank,
                                              absl::Span<const int64_t> profile_durations = {});

}  // namespace penstock
