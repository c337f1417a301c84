// What the RESHARDs of a plan take (execution.md, section 7).
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/reshard_time.h"

namespace penstock::core {

struct ReshardDurations {
  int64_t parameters_ns = 0;
  int64_t gradients_ns = 0;
};

// Where a stage is among those of the program's rank.
StageOfRank StageOfRankIn(const v1::Program& program, uint32_t stage, const v1::Plan& plan);

// Of all meshes of the plan, which has parameter_shares: by when it says that passes start and end, from the
// end of each rank's RESHARD of parameters on, and up to the end of the last pass. All of the time where no
// rank has a pass.
ReshardDurations ReshardDurationsOf(const v1::Plan& plan, const ReshardTime& time);

}  // namespace penstock::core
