// How noisy the times of passes are: what no costs foretell.
#pragma once

#include "absl/types/span.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// The standard deviation of log(measured / foretold), told by the median difference of passes that follow
// each other, so that a rank that stood still once counts no more than others. What all passes of one kind on
// one stage of a rank have in common in an iteration does not count: it is the iteration, the rank or the
// costs, and no plan is better for it (schedule/pass_noise.h). Backward passes in two parts count by their
// second part alone: the sum of both is steadier than either. Weighed by time: short passes are noisier, and
// matter less. `costs`: of the job, with the profile that was fitted to the passes. `before`: what the
// profile in effect says. It stays where the new value is much the same, and where there are too few passes
// to tell; what is hardly there counts as 0. Passes of no rank do not count.
double MeasuredNoise(const CostModel& costs, absl::Span<const MeasuredPass> passes, double before);

}  // namespace penstock::core
