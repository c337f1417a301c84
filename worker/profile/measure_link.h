// Speed and latency of transfers between two ranks of this machine, over Gloo and loopback.
#pragma once

#include "absl/status/statusor.h"
#include "worker/profile/measured_profile.h"

namespace penstock::worker {

// Takes well under a second. Possible errors: UNAVAILABLE.
absl::StatusOr<MeasuredLink> MeasureLoopbackLink();

}  // namespace penstock::worker
