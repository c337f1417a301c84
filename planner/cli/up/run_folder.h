// The folder of a run: logs, checkpoints, and what the run was started with.
//
//   RUN_DIR/run.json                what the run was started with (run_record.h)
//   RUN_DIR/model.json              its model, for `penstock model` (model/model_folder.h)
//   RUN_DIR/base                    of a model with adapters: all else (model/base_folder.h)
//   RUN_DIR/hugging_face            what its model came with, for the export (model/kept_files.h)
//   RUN_DIR/best                    the checkpoint of the least validation loss (validation.h)
//   RUN_DIR/measured.json           what it does now, for `penstock advise` (advise/measured_run.h)
//   RUN_DIR/costs.json              the costs by which --auto-tune compares ways (auto_tune.h)
//   RUN_DIR/metrics.jsonl           a line for each iteration (metrics_file.h)
//   RUN_DIR/tensorboard             the same for TensorBoard (tensorboard_events.h)
//   RUN_DIR/logs/*.log              one file for each process
//   RUN_DIR/checkpoints/iteration-N
//   RUN_DIR/planner.db              the planner's jobs, for as long as the run lives
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"
#include "planner/cli/up/checkpoints.h"
#include "planner/cli/up/run_record.h"

namespace penstock::cli {

struct RunFolder {
  std::string path;
  std::string logs;
  std::string checkpoints;
  std::string planner_store;
  // Where training goes on: 0, or that of the newest checkpoint.
  uint64_t first_iteration = 0;
  // Held as long as the run lives: nobody else runs in this folder.
  FileDescriptor lock;
};

struct RunFolderOptions {
  std::string path;
  bool resume = false;
  bool fresh = false;
  // What may differ from the run that is resumed (ChangeableFlags).
  std::vector<std::string> allowed_changes = {};
  // As for CompleteCheckpoint.
  size_t kept_checkpoints = kKeptCheckpoints;
  // Tells the user of checkpoints that cannot be used.
  SayToUser say = {};
};

// Makes the folder, or finds the checkpoint to resume from, and writes `record` to run.json. With `resume`
// the run must be the one that was started in the folder (CheckSameRun). Possible errors: ALREADY_EXISTS
// (another run uses it; checkpoints are there, or damaged ones: --resume or --fresh), NOT_FOUND (nothing to
// resume), INVALID_ARGUMENT (another run: names the flag), DATA_LOSS (every checkpoint is damaged), those of
// the file system.
absl::StatusOr<RunFolder> PrepareRunFolder(const RunFolderOptions& options, RunRecord record);

}  // namespace penstock::cli
