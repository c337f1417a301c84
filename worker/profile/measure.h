// Measures a cost profile of a model on this machine: one layer, head, embedding, optimizer and the link.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "worker/profile/measured_profile.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Nanoseconds since some fixed time.
using NanosecondClock = std::function<double()>;
double SteadyNanoseconds();

// On CPU, with `threads` threads. Padded rectangles and packed micro-batches from a few to
// some thousand tokens are run forward and backward, small ones first, several times each (the median
// counts), until `seconds` are over; at least the smallest four are measured, however long they take. `clock`
// measures all but the link. Blocks. Possible errors: RESOURCE_EXHAUSTED (memory), UNAVAILABLE (no loopback),
// INTERNAL.
absl::StatusOr<MeasuredProfile> MeasureProfile(const ModelConfig& config, double seconds, int threads,
                                               const NanosecondClock& clock = SteadyNanoseconds);

}  // namespace penstock::worker
