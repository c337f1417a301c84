// A profile with other costs.
#pragma once

#include "penstock/v1/cost_profile.pb.h"
#include "planner/core/calibrate/cost_factors.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// `profile` (valid, of this architecture) with its times multiplied; memory, and whatever else it says,
// stays, but for slow ranks and links, noise and loads of experts where there are others. Its version is one
// higher.
v1::CostProfile ReviseProfile(const v1::CostProfile& profile, Architecture architecture,
                              const CostFactors& factors);

}  // namespace penstock::core
