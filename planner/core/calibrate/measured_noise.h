// How noisy the times of passes are: what no costs foretell.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// The standard deviation of log(measured / foretold), told by the median difference of passes that follow
// each other, so that a rank that stood still once counts no more than others. What all passes of one kind on
// one stage of a rank have in common in an iteration does not count: it is the iteration, the rank or the
// costs, and no plan is better for it (schedule/pass_noise.h). Backward passes in two parts count by their
// second part alone: the sum of both is steadier than either. Weighed by time: short passes are noisier, and
// matter less. `costs`: of the job, with the profile that was fitted to the passes. Passes of no rank do not
// count. Nothing: there are too few passes to tell.
std::optional<double> MeasuredNoise(const CostModel& costs, absl::Span<const MeasuredPass> passes);

// What plans are made with: `before`, of the profile in effect, where `noise` is much the same; 0 where it is
// hardly there.
double SteadyNoise(double noise, double before);

}  // namespace penstock::core
