// How fast replicas are, where some of their ranks are slow.
#pragma once

#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::core {

// For each replica the work that it does in the time in which one without slow ranks does 1: its pipeline is
// as fast as its busiest position. Empty: all are as fast. `batch`: sums over all samples, which say how busy
// positions are.
std::vector<double> ReplicaSpeeds(const CostModel& costs, int replicas, const TokenSums& batch);

}  // namespace penstock::core
