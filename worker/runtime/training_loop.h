// The loop of a worker: next program, execute, report, checkpoint; until the job is finished.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "worker/agent/control_plane.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

struct TrainingLoopParts {
  // Runs an iteration (Executor::Run).
  std::function<absl::StatusOr<IterationResult>(const Program&)> run;
  // Called after every iteration (checkpoints).
  std::function<absl::Status(uint64_t iteration)> after_iteration;
};

// Blocks until the job is finished, which it is when every rank has reported its last iteration. `control`
// has been asked for programs (StartPrograms). Possible errors: those of `control` and of the parts.
absl::Status RunTrainingLoop(ControlPlane& control, const TrainingLoopParts& parts);

}  // namespace penstock::worker
