// Fits the closed form of a layer's time to measured points. Without LibTorch; pure.
#pragma once

#include <vector>

#include "worker/profile/measured_profile.h"

namespace penstock::worker {

struct CostPoint {
  TokenFigures tokens;
  double ns = 0;
};

// Non-negative coefficients with the least sum of squared relative errors (small and large micro-batches
// count the same), in which points that are far off count less (HuberWeights). half_efficiency_tokens is the
// best of the powers of two up to 4096, or 0. packed_row_ns, divided_row_ns and the terms of calls are
// there only where each takes a tenth off the sum, of 12 points at least. A term whose figure is 0 at every
// point is left out. In place of half_efficiency_tokens there is a table of efficiency where it is worth it
// (FitEfficiency). No points: all zero.
MeasuredTime FitTime(const std::vector<CostPoint>& points);

// The same without a table in any case.
MeasuredTime FitPlainTime(const std::vector<CostPoint>& points);

}  // namespace penstock::worker
