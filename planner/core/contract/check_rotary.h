// Which rotary positions a model may have (job.proto, RotaryPosition).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// `head_width`: elements of a head, an even number. Possible errors: INVALID_ARGUMENT (names the field).
absl::Status CheckRotary(const v1::RotaryPosition& rotary, uint32_t head_width);

}  // namespace penstock::core
