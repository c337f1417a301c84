// From an order of the passes of each stage to the list of each rank.
#pragma once

#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// With one stage a rank the lists are the order itself. A rank with several stages runs their passes in an
// order of dependencies, whatever they cost: it never blocks, but is not made to be fast.
void MakeRankPasses(const PipelineCosts& costs, const PassOrder& order, RankPasses* passes);

}  // namespace penstock::core
