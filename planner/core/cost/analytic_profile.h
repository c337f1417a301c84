// The analytic reference profiles: a grid of milliseconds, and the formulas that made it, written as text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// `root`: the whole file, an object. The formulas become closed forms; the tables are kept and must agree
// with them within a ten-thousandth. Possible errors: INVALID_ARGUMENT, naming the key.
absl::StatusOr<v1::ProfileFile> ParseAnalyticProfile(const nlohmann::json& root);

}  // namespace penstock::core
