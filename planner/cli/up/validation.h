// The loss of each checkpoint on data that is not trained on: penstock-worker evaluates a copy of it beside
// the training, on one CPU or GPU of this machine, and the best one is kept.
//
//   RUN_DIR/best            a model folder (model/model_folder.h): export it, go on from it
//   RUN_DIR/best/validation.json
//   RUN_DIR/validating      the checkpoint that is looked at; hard links, which take no room
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/named_datasets.h"
#include "common/process/child_process.h"

namespace penstock::cli {

struct ValidationOptions {
  // Path of penstock-worker.
  std::string worker;
  std::string run_dir;
  // Each is a task.
  std::vector<NamedDataset> datasets;
  // Of each; 0: all.
  uint64_t samples = 0;
  uint32_t max_length = 0;
  // "cpu" or "cuda:N".
  std::string device = "cpu";
  // Where the run begins: of checkpoints that are not newer nothing is said.
  uint64_t first_iteration = 0;
};

struct TaskLoss {
  std::string task;
  // A token.
  double loss = 0;
  uint64_t tokens = 0;
};

struct ValidatedCheckpoint {
  uint64_t next_iteration = 0;
  // A token, of all datasets together.
  double loss = 0;
  uint64_t tokens = 0;
  // Where there are several datasets: the loss of each.
  std::vector<TaskLoss> tasks = {};
  // The best so far.
  bool best = false;
};

class Validation {
 public:
  // Of a run that goes on, the best checkpoint so far is remembered; of one that begins, it is removed.
  // Possible errors: those of the file system, INVALID_ARGUMENT (a broken validation.json); all name the
  // file.
  static absl::StatusOr<std::unique_ptr<Validation>> Open(const ValidationOptions& options);

  // The checkpoint whose evaluation has ended since the last call, if any; then begins with the newest one
  // that was not looked at. Does not block. Possible errors: UNAVAILABLE (the worker failed: says where its
  // log is), those of the file system; the next checkpoint is tried all the same.
  absl::StatusOr<std::optional<ValidatedCheckpoint>> Step();
  // Whether Step has something to wait for, or to begin with.
  bool pending() const;

  // The best so far; nothing before the first.
  const std::optional<ValidatedCheckpoint>& best() const { return best_; }
  std::string best_folder() const;
  // Since the best one.
  uint64_t worse_in_a_row() const { return worse_in_a_row_; }

 private:
  explicit Validation(const ValidationOptions& options)
      : options_(options), looked_at_(options.first_iteration) {}

  std::string validating() const;
  // The newest complete checkpoint; 0: none.
  uint64_t Newest() const;
  absl::Status Begin(uint64_t next_iteration);
  absl::StatusOr<ValidatedCheckpoint> End(const ExitStatus& ended);
  absl::Status KeepBest(const ValidatedCheckpoint& checkpoint);

  const ValidationOptions options_;
  uint64_t looked_at_;
  std::unique_ptr<ChildProcess> evaluation_;
  std::optional<ValidatedCheckpoint> best_;
  uint64_t worse_in_a_row_ = 0;
};

}  // namespace penstock::cli
