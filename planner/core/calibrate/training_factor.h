// A profile whose times were measured alone, for ranks that train.
#pragma once

#include "penstock/v1/cost_profile.pb.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// All computing takes `factor` times as long; the profile's `training_factor` says so. Links and the version
// stay as they are.
v1::CostProfile WithTrainingFactor(const v1::CostProfile& profile, Architecture architecture, double factor);

}  // namespace penstock::core
