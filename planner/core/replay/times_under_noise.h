// How long a plan takes when the times of its passes are noisy.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {

// Of all draws: the mean, and what one in twenty is above.
struct TimesUnderNoise {
  double mean_ns = 0;
  double late_ns = 0;
};

// By rank.
std::vector<int> ReplicasOf(const v1::Plan& plan);

// Runs the plan again `draws` times, at least once, with passes as long as PassNoise makes them (`deviation`
// above 0, at most 1); transfers and collectives take what they are said to. The same for the same arguments:
// two plans of a batch are compared under one `seed`. Possible errors: those of ProgramSetOfPlan, INTERNAL
// (its ranks wait for each other), CANCELLED.
absl::StatusOr<TimesUnderNoise> RunUnderNoise(const v1::Plan& plan, double deviation, uint64_t seed,
                                              int draws, StopToken stop = {});
// The same of its programs, whose passes may be given other durations: `replicas` has that of each rank.
absl::StatusOr<TimesUnderNoise> RunUnderNoise(ProgramSet programs, absl::Span<const int> replicas,
                                              double deviation, uint64_t seed, int draws,
                                              StopToken stop = {});

}  // namespace penstock::core
