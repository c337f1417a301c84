// What a job may ask for at most (limits.h): checked before anything is computed from its numbers, so that
// sums and products of them stay in range. job.proto names the bounds. Cheap: constant time.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Numbers of model, mesh, planning and training that are beyond their bounds, or no numbers (a learning rate
// of NaN). What is missing is not judged: JobFromProto does. Possible errors: INVALID_ARGUMENT, naming the
// field ("job.model.layers: 100000; use at most 4096").
absl::Status CheckJobLimits(const v1::JobSpec& job);

// One of them.
absl::Status CheckAtMost(absl::string_view field, uint64_t value, uint64_t most);

}  // namespace penstock::core
