// What is wrong with a field of a job, and what it is when it is left out.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace penstock::core {

// ModelSpec.relative_position_buckets where it is 0.
inline constexpr uint32_t kRelativePositionBuckets = 32;

// INVALID_ARGUMENT: "job.mesh.data: 0; use at least 1".
inline absl::Status Wrong(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

}  // namespace penstock::core
