// Measures a cost profile of a model on this machine: one layer, head, embedding, optimizer and the link.
#pragma once

#include "absl/status/statusor.h"
#include "worker/profile/measured_device.h"
#include "worker/profile/measured_profile.h"
#include "worker/program/program.h"

namespace penstock::worker {

// On `device`, the host with `threads` threads. Padded rectangles and packed micro-batches from a few to
// some thousand tokens are run forward and backward, small ones first, several times each (the median
// counts), each time with a layer of which the caches hold no more than in training, until `seconds` are
// over; at least the smallest four are measured, however long they take, and of the others what fits into
// memory. `clock` measures all but the link, and is read when the device has been waited for. Blocks.
// Possible errors: RESOURCE_EXHAUSTED (memory), UNAVAILABLE (no loopback), INTERNAL.
absl::StatusOr<MeasuredProfile> MeasureProfile(const ModelConfig& config, double seconds, int threads,
                                               const MeasuredDevice& device = {},
                                               const NanosecondClock& clock = SteadyNanoseconds);

}  // namespace penstock::worker
