// Measures passes that no cost profile is fitted to, for `penstock profile check`.
#pragma once

#include "absl/status/statusor.h"
#include "common/held_out/held_out_times.h"
#include "worker/profile/measured_device.h"
#include "worker/profile/measuring_time.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct HeldOutSettings {
  // Share of it for layers, the rest for the head.
  double seconds = 6;
  MeasuringThreads threads = {};
};

// Layers (at every recompute level, and with split backward passes) and the head on HeldOutShapes, small ones
// first, until the time is over; at least the smallest four, and of the others what fits into memory. Clocks
// as MeasureProfile has them. Blocks. Possible errors: RESOURCE_EXHAUSTED (memory), INTERNAL.
absl::StatusOr<HeldOutTimes> MeasureHeldOut(const ModelConfig& config, const HeldOutSettings& settings,
                                            const MeasuredDevice& device = {},
                                            NanosecondClock clock = nullptr);

}  // namespace penstock::worker
