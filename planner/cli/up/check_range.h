// A flag's value is in its range, or an error says which it is.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace penstock::cli {

// "--heads 0: use 1 to 128".
inline absl::Status CheckRange(absl::string_view flag, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": use ", least, " to ", most));
}

}  // namespace penstock::cli
