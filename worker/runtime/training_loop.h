// The loop of a worker: next program, execute, report, checkpoint; until the job is finished.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/agent/control_plane.h"
#include "worker/runtime/checkpointing.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

struct TrainingLoopParts {
  // Called with a program that is run soon, before `run` and while there is time: it may be made ready beside
  // what runs (Executor::Prepare). With one program several times.
  std::function<void(std::shared_ptr<const Program>)> prepare = [](const std::shared_ptr<const Program>&) {};
  // Runs an iteration (Executor::Run).
  std::function<absl::StatusOr<IterationResult>(const Program&)> run;
  // Those of this rank (worker/runtime/checkpointing.h).
  Checkpointing* checkpoints = nullptr;
  // Why this rank is to end when its checkpoint is written; OK: it goes on. Asked where any rank is to stop.
  std::function<absl::Status()> stop_reason = [] { return absl::OkStatus(); };
  // Called with each iteration that was run, and how long this rank waited for its program.
  std::function<void(const Program&, const IterationResult&, absl::Duration waited)> ran =
      [](const Program&, const IterationResult&, absl::Duration) {};
  // Called when the iteration is done: what belongs to it is written, or being written, and reported.
  std::function<void(uint64_t iteration)> finished = [](uint64_t) {};
  // How long the planner may take for reports.
  absl::Duration report_timeout = absl::Seconds(60);
};

// Blocks until the job is finished, which it is when every rank has reported its last iteration. `control`
// has been asked for programs (StartPrograms). Possible errors: those of `control` and of the parts, and the
// stop reason.
absl::Status RunTrainingLoop(ControlPlane& control, const TrainingLoopParts& parts);

}  // namespace penstock::worker
