// From v1::CostProfile to the core's profile, validated.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/cost_profile.pb.h"
#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"

namespace penstock::core {

LayerTime LayerTimeFromProto(const v1::LayerTime& time);
LayerBytes LayerBytesFromProto(const v1::LayerBytes& bytes);

// Of a model with these windows (WindowsOf). Possible errors: INVALID_ARGUMENT naming the field, as
// "profile.layers[0].forward: ...".
absl::StatusOr<Profile> ProfileFromProto(const v1::CostProfile& profile, Architecture architecture,
                                         const AttentionWindows& windows = {});

// Of a profile that is valid.
std::vector<SlowRank> SlowRanksFromProto(const v1::CostProfile& profile);
std::vector<SlowLink> SlowLinksFromProto(const v1::CostProfile& profile);

}  // namespace penstock::core
