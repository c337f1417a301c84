// A timeline from CSV: one operation a line.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::cli {

// Plain or gzip, with a header: docs/diagnosis.md lists the columns. Possible errors: NOT_FOUND (the file),
// INVALID_ARGUMENT (names the file and the line).
absl::StatusOr<core::Timeline> ReadCsvTrace(const std::string& path);

}  // namespace penstock::cli
