// A replica's pipeline with times that are linear in a micro-batch's share of its work: what ideal sizes
// (ideal_sizes.h) are made from.
#pragma once

#include <vector>

#include "planner/core/search/ideal_sizes.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

struct LinearPipeline {
  std::vector<LinearStage> stages;
  // As many micro-batches of this share as strict 1F1B has in flight fit on every stage without more
  // recompute than the mode asks for.
  double largest_share = 1;
};

// The share of all sums; a packed micro-batch of samples of all lengths.
TokenSums ShareOf(const TokenSums& all, double share);

// `replica`: sums over all samples of a replica. Lines through what micro-batches of the mean size and of
// half of it take, with the least recompute that the mode allows. One stage a rank.
LinearPipeline MakeLinear(const ScheduleSpace& space, const TokenSums& replica, int micro_batches);

}  // namespace penstock::core
