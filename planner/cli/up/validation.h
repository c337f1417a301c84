// The loss of each checkpoint on data that is not trained on: penstock-worker evaluates a copy of it beside
// the training, on one CPU or GPU of this machine, and the best one is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/named_datasets.h"
#include "common/process/child_process.h"
#include "planner/cli/up/best_checkpoint.h"

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

class Validation {
 public:
  // Possible errors: those of BestCheckpoint::Open.
  static absl::StatusOr<std::unique_ptr<Validation>> Open(const ValidationOptions& options);

  // The checkpoint whose evaluation has ended since the last call, if any; then begins with the newest one
  // that was not looked at. Does not block. Possible errors: UNAVAILABLE (the worker failed: says where its
  // log is), those of the file system; the next checkpoint is tried all the same.
  absl::StatusOr<std::optional<ValidatedCheckpoint>> Step();
  // Whether Step has something to wait for, or to begin with.
  bool pending() const;

  const BestCheckpoint& best() const { return best_; }

 private:
  Validation(const ValidationOptions& options, BestCheckpoint best)
      : options_(options), looked_at_(options.first_iteration), best_(std::move(best)) {}

  // The newest complete checkpoint; 0: none.
  uint64_t Newest() const;
  absl::Status Begin(uint64_t next_iteration);
  absl::StatusOr<ValidatedCheckpoint> End(const ExitStatus& ended);

  const ValidationOptions options_;
  uint64_t looked_at_;
  std::unique_ptr<ChildProcess> evaluation_;
  BestCheckpoint best_;
};

}  // namespace penstock::cli
