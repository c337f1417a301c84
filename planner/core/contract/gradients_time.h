// What the RESHARD of gradients of a plan takes (execution.md, section 7).
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/reshard_time.h"

namespace penstock::core {

// Of all meshes of the plan, which has parameter_shares: by when it says that passes end, and where the
// RESHARD begins when the last of them has. All of the time where it has no pass.
int64_t GradientsNs(const v1::Plan& plan, const ReshardTime& time);

}  // namespace penstock::core
