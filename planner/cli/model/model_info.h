// What `penstock model info` says of a model.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ModelInfo {
  v1::ModelSpec model;
  // "Hugging Face, llama", or "Penstock, iteration 40".
  std::string kind;
  // Parameters of the model, tied ones counted once.
  uint64_t parameters = 0;
  // What of its training is not done (hugging_face_config.h); empty: nothing.
  std::string dropout;
};

// `path`: a folder of Hugging Face's or its config.json, a run's folder or an imported one.
// Possible errors: NOT_FOUND, INVALID_ARGUMENT (names file and field).
absl::StatusOr<ModelInfo> InfoOf(const std::string& path);

// Lines of a table: what, value.
std::vector<std::pair<std::string, std::string>> Describe(const ModelInfo& info);

}  // namespace penstock::cli
