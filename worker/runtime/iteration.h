// The state of one iteration on one rank, and what each kind of instruction does to it. Used by the executor
// only.
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
#include "absl/strings/string_view.h"
#include "worker/comm/communicator.h"
#include "worker/model/stage.h"
#include "worker/program/program.h"
#include "worker/runtime/buffer_map.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/finite_search.h"
#include "worker/runtime/gradient_norm.h"
#include "worker/runtime/gradient_reductions.h"
#include "worker/runtime/gradient_rounds.h"
#include "worker/runtime/parameter_rounds.h"
#include "worker/runtime/token_reader.h"
#include "worker/runtime/votes.h"

namespace penstock::worker {

class Iteration {
 public:
  // All must outlive this object. `search`: looks at every pass; null: none does.
  Iteration(const ExecutorParts& parts, const Program& program, TokenReader& reader,
            FiniteSearch* search = nullptr);

  // What the order (InstructionOrder) has prepared.
  absl::Status Execute(const Instruction& instruction);
  // Waits for what is still under way, then fills in loss, norm, learning rate and votes.
  absl::Status Finish(IterationResult& result);

  // Why OPTIMIZER_STEP has changed nothing: "the loss", say, is not finite. The same on every rank, after
  // Finish. Empty: it has.
  const std::string& not_finite() const { return not_finite_; }

 private:
  // A buffer and the id of the RECV that fills it.
  struct Received {
    at::Tensor buffer;
    uint32_t transfer = 0;
  };

  absl::Status Launch(const Instruction& instruction);
  absl::Status Load(const Instruction& instruction);
  // What the stage needs of the micro-batch's samples, on the device.
  absl::StatusOr<TokenBatch> Tokens(const BufferKey& key);
  double LossDivisor() const;
  // What its micro-batches' tasks have lost. Waits for the device.
  absl::Status AddTasks(IterationResult& result) const;
  absl::Status Forward(const Instruction& instruction);
  absl::Status Backward(const Instruction& instruction);
  absl::Status BackwardInput(const Instruction& instruction);
  absl::Status BackwardWeight(const Instruction& instruction);
  absl::Status Send(const Instruction& instruction);
  absl::Status Receive(const Instruction& instruction);
  absl::Status Free(const Instruction& instruction);
  absl::Status ReduceGradients(const Instruction& instruction);
  absl::Status Reshard(const Instruction& instruction);
  // What a search looks at when gradients have been summed.
  absl::Status SearchSums(const Instruction& instruction);
  // What a backward pass does with gradients that are complete.
  GradientsReady LetGo(const Instruction& pass);
  // Why it could not be done.
  absl::Status CheckLetGo() const;
  absl::Status StepOptimizer(const Instruction& instruction);
  // Where replicas divide the optimizer's state: gives all replicas what each has of a buffer.
  absl::Status GatherFromReplicas(at::Tensor FlatParameters::*buffer);
  // Sums what is of all ranks: shared gradients, the norm, votes. Sets norm_and_votes_.
  absl::Status SumOverRanks(const Instruction& instruction);
  absl::StatusOr<NormAndVotes> SumOverReplicas(const Instruction& instruction,
                                               const at::Tensor& ballot) const;
  // Gives the reduced gradients to ExecutorParts::gradients_ready, unless they are not finite. Waits for the
  // device: who looks at gradients has time.
  absl::Status ShowGradients();
  // Fills in the norms of the parts that this rank speaks for. Waits for the device.
  absl::Status ReadPartNorms(IterationResult& result) const;
  // Fills in the norm and the votes of all ranks, and sets not_finite_. Waits for the device.
  absl::Status ReadNormAndVotes(IterationResult& result);
  // A scalar of the device; `what` it is begins the message of an error.
  absl::StatusOr<double> Read(absl::string_view what, const at::Tensor& scalar) const;
  // Tells ExecutorParts::step_begins, once what the step is made of is there for sure. Waits for the device.
  absl::Status BeginStep() const;
  // That no gradients are still being reduced: the deps of OPTIMIZER_STEP say so.
  absl::Status CheckReduced() const;

  // The buffer of a transfer that has ended.
  absl::StatusOr<at::Tensor> TakeReceived(BufferMap<Received>& buffers, const BufferKey& key);
  // The buffer that the stage got from its neighbour: over a transfer, or from the stage beside it on this
  // rank. What stays on the rank is handed over: an output lives on with the stage above it, whose input
  // gradient takes its place, and that gradient until the stage below has used it.
  absl::StatusOr<at::Tensor> InputOf(const Instruction& instruction);
  absl::StatusOr<at::Tensor> OutputGradientOf(const Instruction& instruction);
  absl::Status KeepInputGradient(const BufferKey& key, at::Tensor gradient);

  bool IsFirst(uint32_t stage) const { return stage == 0; }
  bool IsLast(uint32_t stage) const { return stage + 1 == program_.layers_per_stage.size(); }

  const ExecutorParts& parts_;
  const Program& program_;
  TokenReader& reader_;
  FiniteSearch* const search_;
  // Of this rank's stages.
  std::map<uint32_t, TokenNeeds> needs_;

  BufferMap<TokenBatch> tokens_{"loaded tokens"};
  BufferMap<Received> received_activations_{"received activation"};
  BufferMap<Received> received_gradients_{"received gradient"};
  BufferMap<at::Tensor> outputs_{"output activation"};
  BufferMap<at::Tensor> input_gradients_{"input gradient"};
  // Between FORWARD and BACKWARD or BACKWARD_INPUT.
  BufferMap<StageForward> forwards_{"forward pass"};
  // Between BACKWARD_INPUT and BACKWARD_WEIGHT.
  BufferMap<SplitBackward::PutAside> put_aside_{"backward pass"};
  // By the SEND, RECV or REDUCE_GRADIENTS that is being launched.
  std::unique_ptr<PendingTransfer> started_;
  std::vector<at::Tensor> losses_;
  // Where losses are told apart by task: those of a micro-batch's runs.
  struct RunLosses {
    std::vector<LossRun> runs;
    // [runs] float64.
    at::Tensor losses;
  };
  std::vector<RunLosses> run_losses_;
  GradientReductions reductions_;
  ParameterRounds parameter_rounds_;
  GradientRounds gradient_rounds_;
  double learning_rate_ = 0;
  const Votes own_votes_;
  // Of all ranks, from OPTIMIZER_STEP on.
  std::optional<NormAndVotes> norm_and_votes_;
  // By ModelPart, of what this rank speaks for; from OPTIMIZER_STEP on.
  at::Tensor part_squares_;
  std::string not_finite_;
};

}  // namespace penstock::worker
