// RUN/tensorboard: curves of a run as TensorBoard shows them (`tensorboard --logdir RUN/tensorboard`, or a
// folder of runs). Each start of a run writes a file of its own; TensorBoard reads them in the order of their
// names, which have the time in them, and forgets what a later one does again.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/cli/up/tensorboard_record.h"

namespace penstock::cli {

class TensorboardEvents {
 public:
  using Clock = std::function<absl::Time()>;

  // Begins a file in `folder`, which is made where it is missing, for steps from `first_step` on; what
  // earlier files have of them no longer counts. With a first step of 0 earlier files of ours are removed.
  // Possible errors: PERMISSION_DENIED and those of the file system, which name the path.
  static absl::StatusOr<TensorboardEvents> Open(const std::string& folder, uint64_t first_step, Clock clock);

  // Possible errors: UNAVAILABLE (the file cannot be written; names it). The file goes on with the next step.
  absl::Status Add(uint64_t step, const std::vector<Scalar>& scalars);
  // This step and later ones are done again. Possible errors: as before.
  absl::Status GoBackTo(uint64_t step);

 private:
  TensorboardEvents(std::string path, std::ofstream file, Clock clock)
      : path_(std::move(path)), file_(std::move(file)), clock_(std::move(clock)) {}

  absl::Status Write(const std::string& event);

  std::string path_;
  std::ofstream file_;
  Clock clock_;
};

}  // namespace penstock::cli
