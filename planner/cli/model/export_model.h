// A model in Penstock's layout to a Hugging Face checkpoint that transformers opens, and adapters to one that
// PEFT opens beside the model that they adapt. Streams like the import.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::cli {

struct ExportOptions {
  // A run's folder or an imported one (model_folder.h); its newest checkpoint is taken.
  std::string from;
  // Must have no model yet.
  std::string to;
  // A larger model is divided into several files and an index. A tensor is never divided.
  uint64_t most_file_bytes = 5'000'000'000;
  // Of a model with adapters: the model that they make of the one that they adapt, in place of the adapters.
  bool merge = false;
};

struct ExportedModel {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  uint64_t files = 0;
  // Of the checkpoint that was taken.
  uint64_t next_iteration = 0;
  // Copied from what the model came with (kept_files.h), and how its config.json differs from the one there.
  std::vector<std::string> kept_files;
  std::vector<std::string> config_changes;
  // They are adapters.
  bool adapters = false;
};

// Possible errors: ALREADY_EXISTS (there is a model), NOT_FOUND (nothing to export), INVALID_ARGUMENT
// (`merge` without adapters; no family of Hugging Face has such a model: names the field; a checkpoint of
// another model: names the tensor), those of the file system.
absl::StatusOr<ExportedModel> ExportModel(const ExportOptions& options);

}  // namespace penstock::cli
