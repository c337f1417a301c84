// Errors of a cost profile.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace penstock::core {

// INVALID_ARGUMENT that names a field of the profile.
inline absl::Status WrongInProfile(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("profile.", field, ": ", what));
}

}  // namespace penstock::core
