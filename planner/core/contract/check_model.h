// Whether a model is one that Penstock can train: its parts fit each other. Bounds of numbers are judged
// before (job_limits.h).
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Possible errors: INVALID_ARGUMENT, naming the field ("job.model.key_value_heads: 3; must divide heads, 8").
absl::Status CheckModel(const v1::ModelSpec& model);

}  // namespace penstock::core
