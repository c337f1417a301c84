// What this build is.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// "0.1.0".
absl::string_view Version();
// What it was built from: "22e1b93c0a1b", with "-dirty" where files differed; "unknown" without a repository.
absl::string_view Commit();
// "penstock 0.1.0 (22e1b93c0a1b)".
std::string VersionOf(absl::string_view program);

}  // namespace penstock
