// How long a plan takes when the times of its passes are noisy.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// Of all draws: the mean, and what one in twenty is above.
struct TimesUnderNoise {
  double mean_ns = 0;
  double late_ns = 0;
};

// Runs the plan again `draws` times, at least once, with passes as long as PassNoise makes them (`deviation`
// above 0, at most 1); transfers and collectives take what they are said to. The same for the same arguments:
// two plans of a batch are compared under one `seed`. Possible errors: those of ProgramSetOfPlan, INTERNAL
// (its ranks wait for each other), CANCELLED.
absl::StatusOr<TimesUnderNoise> RunUnderNoise(const v1::Plan& plan, double deviation, uint64_t seed,
                                              int draws, StopToken stop = {});

}  // namespace penstock::core
