// What a job may be called. Its name is a folder of a run, too, and shown on terminals.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// 1 to 128 letters, digits, '-', '_' and '.', other than "." and "..". `field` is the flag or field that has
// it. Possible errors: INVALID_ARGUMENT, naming `field`.
absl::Status CheckJobId(absl::string_view field, absl::string_view id);

}  // namespace penstock
