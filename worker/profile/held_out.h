// Measures passes that no cost profile is fitted to, for `penstock profile check`.
#pragma once

#include <vector>

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
  // Shares of one of so many context ranks are measured too, each in less than a third of the time beside it.
  std::vector<int> context_ranks = {};
};

// Layers (at every recompute level, and with split backward passes) and the head on HeldOutShapes, small ones
// first, until the time is over; at least the smallest four, and of the others what fits into memory.
// Likewise layers on HeldOutShares. Clocks as MeasureProfile has them. Blocks. Possible errors:
// INVALID_ARGUMENT (a number of context ranks that the model cannot have), RESOURCE_EXHAUSTED (memory),
// INTERNAL.
absl::StatusOr<HeldOutTimes> MeasureHeldOut(const ModelConfig& config, const HeldOutSettings& settings,
                                            const MeasuredDevice& device = {},
                                            NanosecondClock clock = nullptr);

}  // namespace penstock::worker
