// A Hugging Face checkpoint to Penstock's layout. Streams: what is in memory at once is a few megabytes, or
// one matrix of a GPT-2.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/kept_files.h"

namespace penstock::cli {

struct ImportedModel {
  HuggingFaceModel model;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  // What lay beside the weights.
  KeptFiles files;
};

// Reads config.json and safetensors in `from`, and writes the folder `to` (model_folder.h), which must have
// no checkpoint yet. Every tensor that the model has must be there, and every tensor that is there must be
// one of the model's. A T5 whose tied head is not scaled may have a head of its own all the same: where
// transformers 5 reads and writes T5 1.1, configurations say nothing else. Possible errors: ALREADY_EXISTS
// (there is a checkpoint), NOT_FOUND, INVALID_ARGUMENT (names file and field of the configuration, or the
// tensor), those of the file system.
absl::StatusOr<ImportedModel> ImportModel(const std::string& from, const std::string& to);

}  // namespace penstock::cli
