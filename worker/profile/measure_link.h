// Speed and latency of transfers between two ranks of this machine: on CPU over Gloo and loopback, between
// GPUs as copies from one to the next.
#pragma once

#include "absl/status/statusor.h"
#include "worker/profile/measured_device.h"
#include "worker/profile/measured_profile.h"

namespace penstock::worker {

// Takes well under a second. Of a GPU that is alone on its machine, and needs no link, the loopback is
// measured. Possible errors: UNAVAILABLE, RESOURCE_EXHAUSTED (memory of the GPU), INTERNAL.
absl::StatusOr<MeasuredLink> MeasureLink(const MeasuredDevice& device);

}  // namespace penstock::worker
