// A check that most numbers of a job need.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace penstock::worker {

// Possible errors: INVALID_ARGUMENT (names the field).
inline absl::Status RequirePositive(uint32_t value, absl::string_view field) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is 0: it must be positive"));
}

}  // namespace penstock::worker
