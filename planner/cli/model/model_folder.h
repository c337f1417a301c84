// A folder with a model in Penstock's layout: that of a run, or one that `penstock model import` made.
//
//   DIR/model.json                        the model: a penstock.v1.ModelSpec
//   DIR/checkpoints/iteration-N           its tensors (common/checkpoint)
//   DIR/base                              of a model with adapters: all else (base_folder.h)
//   DIR/hugging_face                      what the model came with beside its weights (kept_files.h)
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ModelFolder {
  v1::ModelSpec model;
  // The folder of the newest checkpoint, and the iteration that training goes on with.
  std::string checkpoint;
  uint64_t next_iteration = 0;
  // Of a model with adapters, which the checkpoint has: the folder of all else (base_folder.h).
  std::string base = {};
};

bool HasModel(const std::string& path);
// Where model.json is.
std::string ModelFile(const std::string& path);

// Possible errors: NOT_FOUND (no such folder, no model.json, no checkpoint, no base), INVALID_ARGUMENT (a
// broken model.json), DATA_LOSS (no checkpoint is sound); all name the file.
absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path);

// The model alone; no checkpoint need be there. Possible errors: as above.
absl::StatusOr<v1::ModelSpec> ReadModel(const std::string& path);

// Writes model.json. Possible errors: those of WriteFileAtomically.
absl::Status WriteModel(const std::string& path, const v1::ModelSpec& model);

// Where the tensors of an imported model are written before its checkpoint is complete.
std::string ImportedTensors(const std::string& path);

// The same, with a folder to write it to. Possible errors: ALREADY_EXISTS (`path` has checkpoints),
// PERMISSION_DENIED.
absl::StatusOr<std::string> PrepareImport(const std::string& path);

// Completes the checkpoint of an imported model, of one rank and no iteration. Possible errors: those of
// RecordPart and CompleteCheckpoint.
absl::Status CompleteImport(const std::string& path);

}  // namespace penstock::cli
