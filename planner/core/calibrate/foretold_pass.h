// What costs say that a measured pass takes.
#pragma once

#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// Of a rank that takes so much in a layer, whatever the pass says of its tokens. At least 1.
double ForetoldNs(const CostModel& costs, const MeasuredPass& pass, const LayerCosts& layers);

// Nanoseconds, on a group that is not slow; 0 where the pass is outside of the profile.
double ForetoldNs(const CostModel& costs, const MeasuredPass& pass);

// Without what ranks exchange inside of it, as it is measured.
double ForetoldAloneNs(const CostModel& costs, const MeasuredPass& pass);

}  // namespace penstock::core
