// Errors of the file system that name the path.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// "writing '/dev/full': No space left on device", as RESOURCE_EXHAUSTED. `error` is an errno.
absl::Status FileError(const std::string& path, absl::string_view doing, int error);

}  // namespace penstock
