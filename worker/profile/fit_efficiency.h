// A table of efficiency by tokens (v1::LayerTime.efficiency) on top of a form without: a token of a linear
// layer takes longer among so many that caches are full, or so few that kernels have little to do. Pure.
#pragma once

#include <optional>
#include <vector>

#include "worker/profile/fit.h"
#include "worker/profile/measured_profile.h"

namespace penstock::worker {

// Numbers of tokens at which points of a table are fitted: the most that were measured, and each a quarter of
// the one behind it, down to four times the fewest. Empty: the points are too few, or too much alike for
// three.
std::vector<double> EfficiencyKnots(const std::vector<CostPoint>& points);

// What each point of a table at these numbers has of what it says for `tokens`; they add up to 1.
std::vector<double> SharesOfKnots(const std::vector<double>& knots, double tokens);

// A form with a table where each point is foretold so much better by it, by a fit to all other points, that
// noise is no reason: by a tenth, in the mean. Its factors are 1 in the middle, and near those of their
// neighbours where points say little. `plain` is a fit to the points without one.
std::optional<MeasuredTime> FitEfficiency(const std::vector<CostPoint>& points, const MeasuredTime& plain);

}  // namespace penstock::worker
