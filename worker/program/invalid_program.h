// The error of a program that a worker cannot run. Private to this folder.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace penstock::worker {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace penstock::worker
