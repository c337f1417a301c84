// How fast replicas are, where some of their ranks or links are slow.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// For each replica the work that it does in the time in which one without slow ranks and links does 1: its
// pipeline is as fast as its busiest position, or as the busiest link between two stages. Empty: all are as
// fast. `tokens`: of all samples, which say how busy positions and links are.
std::vector<double> ReplicaSpeeds(const CostModel& costs, const Topology& topology,
                                  absl::Span<const SampleTokens> tokens);

}  // namespace penstock::core
