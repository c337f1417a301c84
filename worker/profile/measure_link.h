// Speed and latency between two ranks of this machine: of transfers, on CPU over Gloo and loopback, between
// GPUs as copies from one to the next; and of what passes exchange.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/profile/measured_device.h"
#include "worker/profile/measured_profile.h"

namespace penstock::worker {

// Takes well under a second. Of a GPU that is alone on its machine, and needs no link, the loopback is
// measured. Possible errors: UNAVAILABLE, RESOURCE_EXHAUSTED (memory of the GPU), INTERNAL.
absl::StatusOr<MeasuredLink> MeasureLink(const MeasuredDevice& device);

// Of two tensor ranks that gather rows and sum them as passes do (StageGroup), over Gloo and loopback: bytes
// that each of them sends a second, and what an exchange takes at least; the line through two sizes. What
// context ranks exchange takes the same way. Then of four, eight and so on, of the `ranks` that train side by
// side on this machine: they share its cores and what it moves in memory. Each well under a second where
// there are cores for them. Of GPUs, whose collectives are not those, the link is all 0, and all of an
// exchange is taken to go on while they compute. Possible errors: UNAVAILABLE, INTERNAL.
absl::StatusOr<MeasuredCollective> MeasureCollective(const MeasuredDevice& device, uint32_t ranks = 2);

}  // namespace penstock::worker
