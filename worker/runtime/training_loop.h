// The loop of a worker: next program, execute, report, checkpoint; until the job is finished.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/agent/control_plane.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

struct TrainingLoopParts {
  // Runs an iteration (Executor::Run).
  std::function<absl::StatusOr<IterationResult>(const Program&)> run;
  // Writes this rank's part of a checkpoint after the iteration, where one is due; false: none is. Before the
  // report, so that a job is not finished before its last checkpoint is written.
  std::function<absl::StatusOr<bool>(uint64_t iteration)> write_checkpoint;
  // Makes the parts of all ranks a complete checkpoint. Called once the planner has this rank's reports of
  // all iterations before it: what goes on from a checkpoint leaves no iteration unreported.
  std::function<absl::Status(uint64_t iteration)> complete_checkpoint;
  // Called when the iteration is done.
  std::function<void(uint64_t iteration)> finished = [](uint64_t) {};
  // How long the planner may take for reports.
  absl::Duration report_timeout = absl::Seconds(60);
};

// Blocks until the job is finished, which it is when every rank has reported its last iteration. `control`
// has been asked for programs (StartPrograms). Possible errors: those of `control` and of the parts.
absl::Status RunTrainingLoop(ControlPlane& control, const TrainingLoopParts& parts);

}  // namespace penstock::worker
