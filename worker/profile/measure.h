// Measures a cost profile of a model on this machine: one layer, head, embedding, optimizer and the link.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/profile/kept_times.h"
#include "worker/profile/measured_device.h"
#include "worker/profile/measured_profile.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct MeasureSettings {
  // Of measuring whole layers. Each tensor degree takes less than a third as long again.
  double seconds = 6;
  // Of the host, that compute.
  int threads = 1;
  // Several ranks take turns on a core, in training and now: waiting for the core is part of their time.
  bool shared_cores = false;
  // At which a rank's part of each layer is measured too, ascending; 1 is the whole layer, which always is.
  std::vector<int> tensor_degrees = {};
  // Of decoder-only models: shares of one of so many context ranks are measured too, ascending, each in less
  // than a third of the time of whole layers beside it. Forms are then fitted to both.
  std::vector<int> context_ranks = {};
  // So many ranks divide the experts: measured beside whole layers and each of these degrees that they can go
  // with; 1: none do.
  int expert_ranks = 1;
  // That train side by side on this machine: exchanges are measured over 2, 4, 8 ... of them.
  uint32_t side_by_side = 1;
  // Links are measured too. Of workers side by side one does so: together they would share what training has
  // for one exchange at a time.
  bool links = true;
  // What an interrupted measurement of the same has found, and where this one's is kept; null: neither.
  // Outlives the call.
  KeptTimes* kept = nullptr;
};

// On `device`: padded rectangles and packed micro-batches from a few to some thousand tokens are run forward
// and backward, small ones first, several times each (the median counts), each time with a layer of which the
// caches hold no more than in training, until `seconds` are over; at least the smallest four are measured,
// however long they take, and of the others what fits into memory. Of a tensor degree some of these shapes
// are. Times are of the mean speed that the machine had meanwhile (paced_clock.h) unless cores are shared.
// `clock` measures all but the link, and is read when the device has been waited for; none: the thread's own
// time where one thread of the host computes all on a core of its own, so that a stranger's work on that core
// is not counted, and else the time that passes. Where the thread gets little of its core it takes up to
// three times `seconds`. Blocks. Possible errors: INVALID_ARGUMENT (a degree that cannot divide the model;
// names those next to it that can; context ranks that it cannot have), RESOURCE_EXHAUSTED (memory),
// UNAVAILABLE (no loopback), INTERNAL.
absl::StatusOr<MeasuredProfile> MeasureProfile(const ModelConfig& config, const MeasureSettings& settings,
                                               const MeasuredDevice& device = {},
                                               NanosecondClock clock = nullptr);

// Of the degrees, those that can divide the model.
std::vector<int> DegreesThatDivide(const ModelConfig& config, const std::vector<int>& degrees);

}  // namespace penstock::worker
