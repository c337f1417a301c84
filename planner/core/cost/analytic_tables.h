// The tables of an analytic profile.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "penstock/v1/cost_profile.pb.h"

namespace penstock::core {

// Reads the tables of times of every layer that `profile` has (its grid and closed forms are there already),
// and checks them, and the tables of bytes, against the closed forms. Possible errors: INVALID_ARGUMENT (a
// table is missing, has the wrong size, or contradicts the closed form by more than a ten-thousandth), naming
// the key.
absl::Status ReadAnalyticTables(const nlohmann::json& root, v1::CostProfile* profile);

}  // namespace penstock::core
