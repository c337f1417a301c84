// Fits the costs of a profile to passes that were measured.
#pragma once

#include "absl/types/span.h"
#include "planner/core/calibrate/cost_factors.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// `forward` and the two factors of backward passes; the others are 1. Passes outside of the profile do not
// count. First the forward passes: what layers take for being there, for tokens and for squares are told
// apart as far as the shapes of the passes tell them. Then the backward passes in units of these, by kind of
// layer and level of recompute.
CostFactors FitCosts(const CostModel& costs, absl::Span<const MeasuredPass> passes);

}  // namespace penstock::core
