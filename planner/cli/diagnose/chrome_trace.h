// A timeline from a Chrome trace, as PyTorch's profiler, Penstock's --trace and many others write them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::cli {

// Complete events (ph "X") whose args say at least step (or iteration), stage and kind (or optype):
// docs/diagnosis.md lists the arguments. Others are left out. Plain or gzip, at most 1 GiB. Possible errors:
// NOT_FOUND (the file), INVALID_ARGUMENT (names the file and the event).
absl::StatusOr<core::Timeline> ReadChromeTrace(const std::string& path);

// The same of its text; `name` is what errors call it.
absl::StatusOr<core::Timeline> ParseChromeTrace(const std::string& name, const std::string& text);

}  // namespace penstock::cli
