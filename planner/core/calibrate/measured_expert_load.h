// How unevenly a router spread rows over the ranks that divide the experts, by what these reported.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "planner/core/calibrate/observed_iteration.h"
#include "planner/core/cost/profile.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// Of the topology's number of expert ranks: in every layer of every iteration the rows of the fullest rank of
// those that divide its experts together, all added, over what an even router would give each. Nothing where
// no ranks divide experts, or not all have reported rows.
std::optional<ExpertLoad> MeasuredExpertLoad(const Topology& topology,
                                             absl::Span<const ObservedIteration> iterations);

}  // namespace penstock::core
