// How fast replicas, and context ranks in them, are, where some ranks or links are slow.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// For each replica the work that it does in the time in which one without slow ranks and links does 1: its
// pipeline is as fast as its busiest position, with rows placed by ContextSlowness, or as the busiest link
// between two stages. Empty: all are as fast. `tokens`: of all samples, which say how busy positions and
// links are.
std::vector<double> ReplicaSpeeds(const CostModel& costs, const Topology& topology,
                                  absl::Span<const SampleTokens> tokens);

// For each replica how many times as long each of its context ranks takes as the fastest of them: a
// micro-batch has one placement for all positions, so each is as slow as on the position where it is busy
// longest. An empty entry: all of the replica are alike; none at all: of every replica.
std::vector<std::vector<double>> ContextSlowness(const CostModel& costs, const Topology& topology,
                                                 absl::Span<const SampleTokens> tokens);

}  // namespace penstock::core
