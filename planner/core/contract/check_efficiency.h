// Tables of efficiency by tokens (v1::LayerTime.efficiency).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "penstock/v1/cost_profile.pb.h"

namespace penstock::core {

// `field`: its name in messages. Possible errors: INVALID_ARGUMENT (names the field): it stands beside
// half_efficiency_tokens, a point is out of range or order, or more tokens would take less time than fewer.
absl::Status CheckEfficiency(const std::string& field, const v1::LayerTime& time);

}  // namespace penstock::core
