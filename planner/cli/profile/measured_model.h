// The model that a cost profile is measured of.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// Of a cost profile, of a folder with a model.json (a run, an imported model), or of Hugging Face's
// config.json or its folder. `max_length`: tokens of the longest sample; 0: as the model says, 2048 where it
// has no end. Possible errors: NOT_FOUND, INVALID_ARGUMENT; name --model and the file, or --max-length.
absl::StatusOr<v1::ModelSpec> ReadMeasuredModel(const std::string& path, uint32_t max_length);

}  // namespace penstock::cli
