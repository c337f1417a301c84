// By how much the costs of a plan say that its ranks are slow.
#pragma once

#include <vector>

#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// By rank: by how much its passes take longer alone (execution.md, section 7); 1: they do not.
std::vector<double> SlowFactors(const v1::Plan& plan, const v1::CostProfile& profile);

// How many times as long a pass of the plan is planned to take as if no rank were slow: of a stage group, as
// on the context rank that would then be last. `factors`: SlowFactors.
double SlownessOfPass(const v1::Plan& plan, const v1::Program& program, const v1::Instruction& pass,
                      const std::vector<double>& factors);

}  // namespace penstock::core
