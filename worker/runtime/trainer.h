// What one rank trains with: its stages, their optimizer, the executor that runs programs on them, and
// checkpoints of it all.
//
//   Trainer trainer({.registration = &agent->registration(), ...});
//   ... ask for programs from trainer.first_iteration() ...
//   PENSTOCK_ASSIGN_OR_RETURN(IterationResult result, trainer.Run(program));
//   PENSTOCK_ASSIGN_OR_RETURN(bool due, trainer.WriteCheckpointPart(program.iteration));
//   ... report the iteration ...
//   if (due) PENSTOCK_RETURN_IF_ERROR(trainer.FinishCheckpoint(program.iteration));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/control_plane.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/model/stage.h"
#include "worker/optimizer/adamw.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {

// All pointers must outlive the trainer.
struct TrainerParts {
  const Registration* registration = nullptr;
  Device* device = nullptr;
  Communicator* communicator = nullptr;
  // Where checkpoints are written; empty: none are.
  std::string checkpoint_dir = {};
  // What to continue from.
  std::optional<CompleteCheckpoint> checkpoint = {};
  // Where the reduced gradients of every iteration are written; empty: they are not.
  std::string gradients_dir = {};
};

class Trainer {
 public:
  explicit Trainer(TrainerParts parts);

  uint64_t first_iteration() const;

  // Runs an iteration. The first program also says which stages this rank holds: they are built, and read
  // from the checkpoint, then. Possible errors: those of Executor::Run, of building the stages and of reading
  // the checkpoint.
  absl::StatusOr<IterationResult> Run(const Program& program);

  // Writes this rank's part of the checkpoint after the iteration, where one is due; false: none is.
  absl::StatusOr<bool> WriteCheckpointPart(uint64_t iteration);
  // Makes it a complete one. Blocks until every rank has come here.
  absl::Status FinishCheckpoint(uint64_t iteration);

 private:
  const JobConfig& job() const { return parts_.registration->job; }
  absl::Status Build(const Program& program);
  // Parameters and the optimizer's state, by name. A checkpoint holds one of the copies of what stages share.
  std::vector<NamedTensor> State(bool with_copies) const;
  absl::Status Restore();
  // Blocks until all ranks are here.
  absl::Status Barrier();
  absl::Status DumpGradients(uint64_t iteration);

  const TrainerParts parts_;
  std::map<uint32_t, std::unique_ptr<Stage>> stages_;
  // Of all stages, in stage order.
  std::vector<NamedParameter> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<InstructionTimer> timer_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace penstock::worker
