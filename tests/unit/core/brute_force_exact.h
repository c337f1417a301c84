// The best schedule of one small pipeline under the exact rules: every start is what the product's timeline
// says of an order of passes (PipelineTimeline; the simulator tests it on every plan), every byte what the
// tests' own account says of that timeline (event_memory.h).
//
// Which orders are tried: all that each rank could run its passes in. A rank that is free takes any pass
// whose data is there, or puts all of them off until it has run one that arrives later; so every order is
// tried once, also those that are useless in time but let a neighbour's buffers arrive later. Unlike in the
// optimistic search nothing is left out because a better order is known: earlier is not always better for
// memory. Transfers are not decided: they go first come, first served, as the product's timeline has them.
//
// A branch is left where it cannot end before the limit, and where the part of the timeline that later
// decisions cannot change any more is above the limit of memory. Left out for good:
// - a choice of recompute that takes longer and keeps no less, or that is made on a rank which could hold
//   everything at once, and (brute_force.cc) a layout that is worse on every stage in time and bytes. They
//   could only help by making a pass late on purpose. Searches with them found the same optimum for all 128
//   random jobs that they could finish.
// - ties with passes or transfers that take no time at all: which of them the timeline puts first.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "tests/unit/core/brute_force_schedule.h"

namespace penstock::core {

// As BestSchedule. `pipeline` is of a replica of `costs`.
SmallSchedule BestExactSchedule(const CostModel& costs, const SmallPipeline& pipeline, int64_t limit_ns,
                                bool any, int64_t* nodes);

// As OneForwardOneBackwardEnd, with transfers of both directions that wait for each other on a link.
int64_t ExactOneForwardOneBackwardEnd(const SmallPipeline& pipeline, const std::vector<int>& order);

}  // namespace penstock::core
