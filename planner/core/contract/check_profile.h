// Whether the numbers of a cost profile can be what they claim to be.
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/cost_profile.pb.h"

namespace penstock::core {

// Every number is finite, at least 0 and no larger than any machine of ours needs, which finds wrong units
// and keeps sums within 64 bits; axes ascend; tables have a value for each point of the grid. Possible
// errors: INVALID_ARGUMENT
// ("profile.layers[0].forward.fixed_ns: 1e+15; more than 1e+12: is it in nanoseconds?").
absl::Status CheckProfile(const v1::CostProfile& profile);

}  // namespace penstock::core
