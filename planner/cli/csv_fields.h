// Fields of a line of CSV.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::cli {

// Commas inside double quotes belong to the field. Possible errors: INVALID_ARGUMENT (a quote that is not
// closed).
absl::StatusOr<std::vector<std::string>> SplitFields(std::string_view line);

}  // namespace penstock::cli
