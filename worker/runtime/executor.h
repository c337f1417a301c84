// Executes programs: one instruction after the other, in the order of the program. It knows instructions, not
// schedules.
//
//   Executor executor({.job = &job, .device = device.get(), .stages = stages, ...});
//   PENSTOCK_ASSIGN_OR_RETURN(IterationResult result, executor.Run(program));
//
// Buffers live by (kind, stage, micro-batch) from the instruction that makes them to the FREE, or the FORWARD
// or BACKWARD, that uses them up.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/control_plane.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/device/instruction_order.h"
#include "worker/device/instruction_timer.h"
#include "worker/model/stage.h"
#include "worker/model/stage_group.h"
#include "worker/optimizer/adamw.h"
#include "worker/program/job.h"
#include "worker/program/program.h"
#include "worker/runtime/iteration_result.h"
#include "worker/runtime/token_reader.h"
#include "worker/shares/resharding.h"

namespace penstock::worker {

class Iteration;

// What an executor works with. All pointers must outlive it.
struct ExecutorParts {
  const JobConfig* job = nullptr;
  Device* device = nullptr;
  // The stages of this rank, by their number in the pipeline.
  std::map<uint32_t, Stage*> stages = {};
  AdamW* optimizer = nullptr;
  // Where parameters live in shares, of which the optimizer updates this rank's; else null.
  Resharding* resharding = nullptr;
  Communicator* communicator = nullptr;
  // With which the passes of its stages exchange.
  StageGroup* group = &SoleRank();
  // Both of the device.
  InstructionTimer* timer = nullptr;
  InstructionOrder* order = nullptr;
  // Called with the iteration when all gradients are reduced and not yet clipped. May be empty.
  std::function<absl::Status(uint64_t iteration)> gradients_ready = {};
  // Asked once an iteration, before its first instruction, for what this rank says to all others. May be
  // empty.
  std::function<Votes()> votes = {};
  // Called when the optimizer begins to change parameters. From then on until the iteration has ended nobody
  // knows what they are. May be empty. Where it is set, nothing begins to change before all sums over ranks
  // are there for sure: on a GPU the host waits for them, where it would launch the step behind them.
  std::function<void()> step_begins = {};
};

class Executor {
 public:
  // `tokens`: reads those of its programs; null: it makes one.
  explicit Executor(ExecutorParts parts, std::shared_ptr<TokenReader> tokens = nullptr);

  // That the program is run soon: its tokens are read beside what runs. Does nothing the second time.
  void Prepare(std::shared_ptr<const Program> program) { tokens_->Begin(std::move(program)); }

  // Runs one iteration, or one's validation. Not thread-safe. After an error the executor must not be used
  // again. Possible errors: CANCELLED (the communicator was aborted), UNAVAILABLE (a peer is gone),
  // INVALID_ARGUMENT (samples that the dataset does not have, shapes that do not fit), RESOURCE_EXHAUSTED
  // (memory), INTERNAL. The message names iteration, instruction and peer. OUT_OF_RANGE: the loss or the norm
  // of the gradients is not finite, and no parameter of any rank was changed; the message, which is the same
  // on every rank, says which rank and micro-batch it comes from. To find that out, the iteration is run a
  // second time.
  absl::StatusOr<IterationResult> Run(const Program& program);

 private:
  absl::Status RunInstructions(const Program& program, Iteration& iteration) const;
  // Runs an iteration that has ended again, to say where the number comes from because of which `what` is not
  // finite.
  absl::Status Explain(const Program& program, const std::string& what);

  const ExecutorParts parts_;
  const std::shared_ptr<TokenReader> tokens_;
};

}  // namespace penstock::worker
