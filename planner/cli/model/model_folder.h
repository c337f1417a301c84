// A folder with a model in Penstock's layout: that of a run, or one that `penstock model import` made.
//
//   DIR/run.json                          the model
//   DIR/checkpoints/iteration-N/rank-R.safetensors, manifest.json
//   DIR/config.json                       that it was imported with; a run has none
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ModelFolder {
  v1::ModelSpec model;
  // The folder of the newest checkpoint, and the iteration that training goes on with.
  std::string checkpoint;
  uint64_t next_iteration = 0;
};

// Possible errors: NOT_FOUND (no such folder, no run.json, no checkpoint), INVALID_ARGUMENT (a broken
// run.json); all name the file.
absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path);

// Writes run.json and the manifest of a checkpoint of one rank and no iteration, last, because it makes the
// checkpoint complete. Possible errors: those of WriteFileAtomically.
absl::Status WriteModelFolder(const std::string& path, const v1::ModelSpec& model);

// Where the tensors of such a model go.
std::string ImportedTensors(const std::string& path);

}  // namespace penstock::cli
