// The description of a model, as its folder has it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace penstock::worker {

// `path`: a penstock.v1.ModelSpec as JSON. Possible errors: those of ReadFile, INVALID_ARGUMENT (names file
// and field), UNIMPLEMENTED (a value that this worker does not know).
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path);

}  // namespace penstock::worker
