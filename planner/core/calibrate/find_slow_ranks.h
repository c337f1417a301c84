// Ranks that take longer than the others for the same work.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// What ranks take in units of `costs` (of the job, without slow ranks), relative to the usual rank of their
// position: those that are clearly slower, ascending. The medians of their passes, by weight of time, are
// compared. Of passes of groups, a group is named by the first rank of each of its context ranks, for nobody
// knows which of them is slow (where ranks divide experts, by its first rank alone: all are then as slow); of
// those of ranks, each rank is compared with all of its position, in its group and in others, each by its own
// share of the work.
// `peers_alone`: positions are not compared with each other, where they have peers: costs that slow ranks
// have spoilt say nothing of that. `before`: ranks that were slow; they stay until they are clearly not.
// Passes of no rank do not count.
std::vector<SlowRank> FindSlowRanks(const CostModel& costs, PassesOf of,
                                    absl::Span<const MeasuredPass> passes, absl::Span<const SlowRank> before,
                                    bool peers_alone);

// By how much the speed of a rank differs at most; 0.1: by a tenth.
double LargestChange(absl::Span<const SlowRank> before, absl::Span<const SlowRank> after);

// The passes as they would have been on groups, or on ranks, that are not slow.
void TakeSlownessOut(absl::Span<const SlowRank> slow, const Topology& topology, PassesOf of,
                     std::vector<MeasuredPass>* passes);

}  // namespace penstock::core
