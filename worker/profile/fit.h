// Fits the closed form of a layer's time to measured points. Without LibTorch; pure.
#pragma once

#include <vector>

#include "worker/profile/measured_profile.h"

namespace penstock::worker {

struct CostPoint {
  double tokens = 0;
  // Sum of the squares of the row lengths.
  double squares = 0;
  double ns = 0;
};

// Non-negative coefficients with the least sum of squared relative errors (small and large micro-batches
// count the same). half_efficiency_tokens is the best of the powers of two up to 4096, or 0. No points: all
// zero.
MeasuredTime FitTime(const std::vector<CostPoint>& points);

}  // namespace penstock::worker
