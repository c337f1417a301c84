// RESHARDs that were measured, as measurements of the links that they go over.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/cost/profile.h"
#include "planner/core/topology/nodes.h"
#include "planner/core/topology/world.h"

namespace penstock::core {

// One of each part that the iteration has, none without shares. What was measured is what passes left of it:
// how long all of it takes, follows from when the passes ran that were measured with it
// (ReshardTime::FactorOf). Of several meshes side by side the passes of the others are unknown, so there is
// one only where passes hide nothing. Reports name instructions that the plan has. `world`: of the job that
// the costs are of.
std::vector<MeasuredReshard> MeasuredReshards(const ObservedIteration& iteration, const CostModel& costs,
                                              const World& world);

// As they would have been with links like the others of their kind: all ranks wait for the slowest one.
void TakeSlownessOut(absl::Span<const SlowLink> slow, const Nodes& nodes,
                     std::vector<MeasuredReshard>* reshards);

}  // namespace penstock::core
