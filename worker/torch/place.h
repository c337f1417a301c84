// What --device names.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/statusor.h"

namespace penstock::worker {

// `name`: "cpu", "cuda:N", or "cuda" for the first GPU. Says nothing of whether it is there. Possible errors:
// INVALID_ARGUMENT (names --device).
absl::StatusOr<at::Device> PlaceOf(const std::string& name);

}  // namespace penstock::worker
