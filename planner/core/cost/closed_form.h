// Reads the coefficients out of formulas written as text, strictly.
//
//   MatchFormula("# + #*t*H", "0.10 + 2*t*H")   // {0.10, 2}
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::core {

// Each '#' of the pattern stands for a number of the text; all else must be equal, character by character.
// Text beyond the pattern is allowed when it begins with a space, a semicolon or a bracket. Possible errors:
// INVALID_ARGUMENT (shows the pattern and where the text departs from it).
absl::StatusOr<std::vector<double>> MatchFormula(absl::string_view pattern, absl::string_view text);

}  // namespace penstock::core
