// How much longer than the costs say transfers take over links of each kind.
#pragma once

#include <array>

#include "absl/types/span.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/cost/profile.h"
#include "planner/core/topology/link.h"

namespace penstock::core {

// By Link, within a factor of 50. Slow links are taken to be as fast as the others of their kind.
//
// A kind that no transfer went over is measured by the sums of gradients, or the RESHARDs, that went over it;
// by those alone links are never faster than the costs say: workers have both go on beside passes, too, and
// report what is left. `reshards`: as if no link were slow.
// A kind that nothing went over is as much slower as the other one.
std::array<double, kLinks> LinkFactors(absl::Span<const MeasuredTransfer> transfers,
                                       absl::Span<const MeasuredRing> rings,
                                       absl::Span<const MeasuredReshard> reshards,
                                       absl::Span<const SlowLink> slow);

// Of the update in optimizer steps, by the median step; 1 without any. `links`: of LinkFactors, by which the
// all-gather of parameters in a step takes longer.
double OptimizerFactor(absl::Span<const MeasuredStep> steps, const std::array<double, kLinks>& links,
                       absl::Span<const SlowLink> slow);

}  // namespace penstock::core
