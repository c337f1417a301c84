// The folder of a run: logs, checkpoints, and what the run was started with.
//
//   RUN_DIR/run.json                what was trained (job.json without its cost profile)
//   RUN_DIR/logs/*.log              one file for each process
//   RUN_DIR/checkpoints/iteration-N
//   RUN_DIR/planner.db              the planner's jobs, for as long as the run lives
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"
#include "penstock/v1/job.pb.h"

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
};

// Makes the folder, or finds the checkpoint to resume from, and writes run.json. With `resume`, model, data
// and seed must be those that the run was started with; mesh, policy and the number of iterations may change.
// Possible errors: ALREADY_EXISTS (another run uses it; checkpoints are there: --resume or --fresh),
// NOT_FOUND (nothing to resume), INVALID_ARGUMENT (another model: names the field), those of the file system.
absl::StatusOr<RunFolder> PrepareRunFolder(const RunFolderOptions& options, const v1::JobSpec& job);

}  // namespace penstock::cli
