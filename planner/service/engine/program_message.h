// What the stream of a rank sends for one iteration. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/compact/packed_plan.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// Who is where on strategies that the reader does not know: on that of a plan, and on that of its validation.
struct NewTopologies {
  std::optional<v1::Topology> of_plan = {};
  std::optional<v1::Topology> of_validation = {};

  bool any() const { return of_plan.has_value() || of_validation.has_value(); }
};

// `rank` is one of plan.programs. Where that has no instructions, neither has the message.
// `profile_durations`: see StreamProgramsResponse.profile_duration_ns; empty: none.
v1::StreamProgramsResponse MakeProgramMessage(const v1::Batch& batch, const v1::Plan& plan, uint32_t rank,
                                              absl::Span<const int64_t> profile_durations = {});

// The same of a plan that is kept: for a reader of compact programs, or in full; with `topologies`.
// Possible errors: INTERNAL, that of PackedPlan.
absl::StatusOr<v1::StreamProgramsResponse> MakeProgramMessage(const v1::Batch& batch, const PackedPlan& plan,
                                                              uint32_t rank,
                                                              absl::Span<const int64_t> profile_durations,
                                                              bool compact,
                                                              const NewTopologies& topologies = {});

}  // namespace penstock
