// By how much the costs of a plan say that its ranks are slow.
#pragma once

#include <vector>

#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// By rank: the factor of the slowest rank of its stage group (execution.md, section 7); 1: none is slow.
std::vector<double> SlowFactors(const v1::Plan& plan, const v1::CostProfile& profile);

}  // namespace penstock::core
