// Ranks that take longer than the others for the same work.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// What stage groups take in units of `costs` (of the job, without slow ranks), relative to the usual group of
// their position: those that are clearly slower, each by its first rank; ascending. The medians of their
// passes, by weight of time, are compared. `peers_alone`: positions are not compared with each other, where
// they have peers: costs that slow ranks have spoilt say nothing of that. `before`: ranks that were slow;
// they stay until they are clearly not. Passes of no rank do not count.
std::vector<SlowRank> FindSlowRanks(const CostModel& costs, absl::Span<const MeasuredPass> passes,
                                    absl::Span<const SlowRank> before, bool peers_alone);

// By how much the speed of a rank differs at most; 0.1: by a tenth.
double LargestChange(absl::Span<const SlowRank> before, absl::Span<const SlowRank> after);

// The passes as they would have been on groups that are not slow.
void TakeSlownessOut(absl::Span<const SlowRank> slow, const Topology& topology,
                     std::vector<MeasuredPass>* passes);

}  // namespace penstock::core
