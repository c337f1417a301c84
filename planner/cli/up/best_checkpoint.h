// The checkpoint of the least validation loss, kept while training goes on and older ones are removed.
//
//   RUN_DIR/best            a model folder (model/model_folder.h): export it, go on from it
//   RUN_DIR/best/validation.json
//   RUN_DIR/validating      a copy that is looked at; hard links, which take no room
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::cli {

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

// "loss", "predicted_tokens" and "datasets", as penstock-worker evaluate writes them, and "next_iteration".
// Possible errors: NOT_FOUND, INVALID_ARGUMENT; both name the file.
absl::StatusOr<ValidatedCheckpoint> ReadValidationRecord(const std::string& file);

class BestCheckpoint {
 public:
  // Of a run that goes on, the best checkpoint so far is remembered; of one that begins with iteration 0, it
  // is removed. Possible errors: those of the file system, INVALID_ARGUMENT (a broken validation.json); all
  // name the file.
  static absl::StatusOr<BestCheckpoint> Open(const std::string& run_dir, uint64_t first_iteration);

  // Whether it is the best so far: sets `best`, and counts. A loss that is no number is never better.
  void Judge(ValidatedCheckpoint& checkpoint);

  // Makes RUN_DIR/validating of a checkpoint that is complete; from there it becomes RUN_DIR/best. Possible
  // errors: those of the file system; they name the path.
  absl::Status Copy(uint64_t next_iteration) const;
  absl::Status KeepCopy(const ValidatedCheckpoint& checkpoint) const;

  // The best so far; nothing before the first.
  const std::optional<ValidatedCheckpoint>& best() const { return best_; }
  // Since the best one.
  uint64_t worse_in_a_row() const { return worse_in_a_row_; }

  std::string copy() const;
  std::string folder() const;

 private:
  explicit BestCheckpoint(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  std::string run_dir_;
  std::optional<ValidatedCheckpoint> best_;
  uint64_t worse_in_a_row_ = 0;
};

}  // namespace penstock::cli
