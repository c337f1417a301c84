#include "worker/runtime/iteration.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "worker/model/parameters.h"
#include "worker/model/token_batch.h"
#include "worker/program/describe.h"
#include "worker/runtime/ballot.h"
#include "worker/runtime/gradient_norm.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

BufferKey KeyOf(const Instruction& instruction) { return {instruction.stage, instruction.micro_batch}; }

bool BringsParameters(const Instruction& instruction) {
  return instruction.op == Op::kReshard &&
         instruction.part == static_cast<uint32_t>(ReshardPart::kParameters);
}

absl::Status CheckShape(const at::Tensor& tensor, const Transfer& transfer) {
  if (tensor.sizes() == at::IntArrayRef(transfer.shape) &&
      tensor.scalar_type() == ToScalarType(transfer.dtype)) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the plan sends [", absl::StrJoin(transfer.shape, ", "),
                                          "], but the stage made [", absl::StrJoin(tensor.sizes(), ", "),
                                          "] of ", c10::toString(tensor.scalar_type())));
}

// Each span of a flat buffer that these holders have.
absl::StatusOr<std::vector<at::Tensor>> SpansOf(const at::Tensor& buffer, const FlatParameters& flat,
                                                Holders holders) {
  return CallTorch("the parameters of a stage", [&] {
    std::vector<at::Tensor> spans;
    for (const FlatSpan& span : flat.spans) {
      if (span.holders == holders) spans.push_back(buffer.narrow(0, span.begin, span.size()));
    }
    return spans;
  });
}

}  // namespace

Iteration::Iteration(const ExecutorParts& parts, const Program& program, TokenReader& reader,
                     FiniteSearch* search)
    : parts_(parts),
      program_(program),
      reader_(reader),
      search_(search),
      reductions_(parts, program),
      parameter_rounds_(parts, program),
      gradient_rounds_(parts, program),
      own_votes_(parts.votes ? parts.votes() : Votes()) {
  for (const auto& [number, stage] : parts.stages) {
    needs_[number] = TokenNeedsOf(parts.job->model, StageRangeOf(program.layers_per_stage, number));
  }
}

absl::Status Iteration::Execute(const Instruction& instruction) {
  PENSTOCK_RETURN_IF_ERROR(parts_.order->Begin(instruction));
  PENSTOCK_RETURN_IF_ERROR(Launch(instruction));
  PENSTOCK_RETURN_IF_ERROR(parts_.order->End(instruction, std::move(started_)));
  if (BringsParameters(instruction)) PENSTOCK_RETURN_IF_ERROR(parameter_rounds_.BringOthers());
  return search_ != nullptr ? SearchSums(instruction) : absl::OkStatus();
}

absl::Status Iteration::SearchSums(const Instruction& instruction) {
  if (instruction.op == Op::kReduceGradients) {
    PENSTOCK_RETURN_IF_ERROR(parts_.order->Await(instruction.id));
    return search_->AfterSum(instruction.stage, parts_.optimizer->shardings());
  }
  const bool of_gradients = instruction.part == static_cast<uint32_t>(ReshardPart::kGradients);
  if (instruction.op != Op::kReshard || !of_gradients) return absl::OkStatus();
  return search_->AfterReshard(parts_.resharding->share());
}

absl::Status Iteration::Launch(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kLoad:
      return Load(instruction);
    case Op::kForward:
      return Forward(instruction);
    case Op::kBackward:
      return Backward(instruction);
    case Op::kBackwardInput:
      return BackwardInput(instruction);
    case Op::kBackwardWeight:
      return BackwardWeight(instruction);
    case Op::kSend:
      return Send(instruction);
    case Op::kRecv:
      return Receive(instruction);
    case Op::kWait:
      return absl::OkStatus();
    case Op::kFree:
      return Free(instruction);
    case Op::kReduceGradients:
      return ReduceGradients(instruction);
    case Op::kReshard:
      return Reshard(instruction);
    case Op::kOptimizerStep:
      return StepOptimizer(instruction);
  }
  return absl::InternalError("unknown op");
}

absl::Status Iteration::Load(const Instruction& instruction) {
  PENSTOCK_ASSIGN_OR_RETURN(TokenBatch batch, Tokens(KeyOf(instruction)));
  return tokens_.Put(KeyOf(instruction), std::move(batch));
}

absl::StatusOr<TokenBatch> Iteration::Tokens(const BufferKey& key) {
  PENSTOCK_ASSIGN_OR_RETURN(const TokenBatch batch, reader_.Take(program_, key));
  return parts_.device->Load(batch);
}

absl::StatusOr<at::Tensor> Iteration::TakeReceived(BufferMap<Received>& buffers, const BufferKey& key) {
  PENSTOCK_ASSIGN_OR_RETURN(Received received, buffers.Take(key));
  PENSTOCK_RETURN_IF_ERROR(parts_.order->Await(received.transfer));
  PENSTOCK_RETURN_IF_ERROR(parts_.order->Use(received.buffer));
  return std::move(received.buffer);
}

absl::StatusOr<at::Tensor> Iteration::InputOf(const Instruction& instruction) {
  const BufferKey key = KeyOf(instruction);
  if (IsFirst(key.stage)) return at::Tensor();
  if (!parts_.stages.contains(key.stage - 1)) return TakeReceived(received_activations_, key);
  return outputs_.Take({key.stage - 1, key.micro_batch});
}

absl::StatusOr<at::Tensor> Iteration::OutputGradientOf(const Instruction& instruction) {
  const BufferKey key = KeyOf(instruction);
  if (IsLast(key.stage)) return at::Tensor();
  if (!parts_.stages.contains(key.stage + 1)) return TakeReceived(received_gradients_, key);
  return input_gradients_.Take({key.stage + 1, key.micro_batch});
}

// With nothing to learn, loss and gradients are sums of nothing.
double Iteration::LossDivisor() const {
  if (program_.loss_weight > 0) return program_.loss_weight;
  return static_cast<double>(std::max<uint64_t>(1, program_.loss_tokens));
}

absl::Status Iteration::Forward(const Instruction& instruction) {
  const BufferKey key = KeyOf(instruction);
  const MicroBatch& shape = program_.micro_batches[key.micro_batch];
  // Where nothing is loaded: who attends to whom.
  const bool loaded = needs_.at(key.stage).any();
  PENSTOCK_ASSIGN_OR_RETURN(const TokenBatch tokens, loaded ? tokens_.Get(key) : Tokens(key));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor input, InputOf(instruction));
  Stage& stage = *parts_.stages.at(key.stage);
  const ParametersNeeded needed = parameter_rounds_.For(key.stage);
  PENSTOCK_ASSIGN_OR_RETURN(
      StageForward forward,
      program_.forward_only
          ? stage.ForwardAlone(shape, tokens, input, LossDivisor(), needed)
          : stage.Forward(shape, tokens, input, shape.recompute[key.stage], LossDivisor(), needed));
  PENSTOCK_RETURN_IF_ERROR(parameter_rounds_.AwaitAllOf(key.stage));
  at::Tensor output = std::exchange(forward.output, at::Tensor());
  if (forward.run_losses.defined())
    run_losses_.push_back({tokens.loss_runs, std::exchange(forward.run_losses, at::Tensor())});
  if (search_ != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(search_->AfterForward(key, input, output, IsLast(key.stage)));
  }
  if (!program_.forward_only) PENSTOCK_RETURN_IF_ERROR(forwards_.Put(key, std::move(forward)));
  if (!IsLast(key.stage)) return outputs_.Put(key, std::move(output));
  losses_.push_back(std::move(output));
  return absl::OkStatus();
}

absl::Status Iteration::Backward(const Instruction& instruction) {
  const BufferKey key = KeyOf(instruction);
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor output_gradient, OutputGradientOf(instruction));
  PENSTOCK_ASSIGN_OR_RETURN(StageForward forward, forwards_.Take(key));
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor input_gradient,
                            parts_.stages.at(key.stage)->Backward(std::move(forward), output_gradient,
                                                                  instruction.beside, LetGo(instruction)));
  PENSTOCK_RETURN_IF_ERROR(CheckLetGo());
  if (search_ != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(search_->AfterBackward(key, output_gradient, input_gradient));
  }
  return KeepInputGradient(key, std::move(input_gradient));
}

absl::Status Iteration::BackwardInput(const Instruction& instruction) {
  const BufferKey key = KeyOf(instruction);
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor output_gradient, OutputGradientOf(instruction));
  PENSTOCK_ASSIGN_OR_RETURN(StageForward forward, forwards_.Take(key));
  PENSTOCK_ASSIGN_OR_RETURN(
      SplitBackward split,
      parts_.stages.at(key.stage)->BackwardInput(std::move(forward), output_gradient, instruction.beside));
  if (search_ != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(search_->AfterBackward(key, output_gradient, split.input_gradient));
  }
  PENSTOCK_RETURN_IF_ERROR(put_aside_.Put(key, std::move(split.put_aside)));
  return KeepInputGradient(key, std::move(split.input_gradient));
}

absl::Status Iteration::BackwardWeight(const Instruction& instruction) {
  const BufferKey key = KeyOf(instruction);
  PENSTOCK_ASSIGN_OR_RETURN(SplitBackward::PutAside put_aside, put_aside_.Take(key));
  Stage& stage = *parts_.stages.at(key.stage);
  PENSTOCK_RETURN_IF_ERROR(stage.BackwardWeight(std::move(put_aside), LetGo(instruction)));
  PENSTOCK_RETURN_IF_ERROR(CheckLetGo());
  return search_ != nullptr ? search_->AfterBackward(key, {}, {}) : absl::OkStatus();
}

absl::Status Iteration::KeepInputGradient(const BufferKey& key, at::Tensor gradient) {
  return IsFirst(key.stage) ? absl::OkStatus() : input_gradients_.Put(key, std::move(gradient));
}

absl::Status Iteration::Send(const Instruction& instruction) {
  const Transfer& transfer = program_.transfers[instruction.transfer];
  const auto& buffers = transfer.kind == TransferKind::kActivation ? outputs_ : input_gradients_;
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor tensor, buffers.Get(KeyOf(instruction)));
  PENSTOCK_RETURN_IF_ERROR(CheckShape(tensor, transfer));
  PENSTOCK_RETURN_IF_ERROR(parts_.order->Use(tensor));
  PENSTOCK_ASSIGN_OR_RETURN(started_, parts_.communicator->Send(tensor, transfer.peer, transfer.sequence));
  return absl::OkStatus();
}

absl::Status Iteration::Receive(const Instruction& instruction) {
  const Transfer& transfer = program_.transfers[instruction.transfer];
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor buffer, parts_.device->NewBuffer(transfer));
  PENSTOCK_ASSIGN_OR_RETURN(started_, parts_.communicator->Receive(buffer, transfer.peer, transfer.sequence));
  auto& buffers = transfer.kind == TransferKind::kActivation ? received_activations_ : received_gradients_;
  return buffers.Put(KeyOf(instruction), {std::move(buffer), instruction.id});
}

absl::Status Iteration::Free(const Instruction& instruction) {
  switch (static_cast<FreePart>(instruction.part)) {
    case FreePart::kOutputActivation:
      return outputs_.Free(KeyOf(instruction));
    case FreePart::kInputGradient:
      return input_gradients_.Free(KeyOf(instruction));
    case FreePart::kLoadedTokens:
      return tokens_.Free(KeyOf(instruction));
  }
  return absl::InternalError("unknown part");
}

absl::Status Iteration::ReduceGradients(const Instruction& instruction) {
  PENSTOCK_ASSIGN_OR_RETURN(started_, reductions_.Start(instruction));
  return absl::OkStatus();
}

// Gradients are there when this returns (on a GPU, when its stream has come so far): what follows waits for
// them anyway.
absl::Status Iteration::Reshard(const Instruction& instruction) {
  if (parts_.resharding == nullptr) return absl::InternalError("the job has no shares of parameters");
  switch (static_cast<ReshardPart>(instruction.part)) {
    case ReshardPart::kParameters:
      return parameter_rounds_.BringFirst();
    case ReshardPart::kGradients:
      return gradient_rounds_.Take();
  }
  return absl::InternalError("unknown part");
}

// A search looks at each pass's gradients, and at their sum apart.
GradientsReady Iteration::LetGo(const Instruction& pass) {
  if (search_ != nullptr) return {};
  return parts_.resharding == nullptr ? reductions_.During(pass) : gradient_rounds_.During(pass);
}

absl::Status Iteration::CheckLetGo() const {
  PENSTOCK_RETURN_IF_ERROR(reductions_.status());
  return gradient_rounds_.status();
}

absl::Status Iteration::SumOverRanks(const Instruction& instruction) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor ballot, MakeBallot(own_votes_, losses_, parts_.device->place()));
  PENSTOCK_ASSIGN_OR_RETURN(
      norm_and_votes_,
      parts_.resharding == nullptr
          ? SumOverReplicas(instruction, ballot)
          : ReduceNormOfShares(parts_, program_.rank, program_.groups[instruction.group], ballot));
  return absl::OkStatus();
}

absl::StatusOr<NormAndVotes> Iteration::SumOverReplicas(const Instruction& instruction,
                                                        const at::Tensor& ballot) const {
  NormGroups groups = {.pipeline = program_.groups[instruction.group]};
  // The same for all stages of a rank.
  const std::map<uint32_t, uint32_t>& reduced_over = reductions_.groups();
  if (!reduced_over.empty()) groups.replicas = program_.groups[reduced_over.begin()->second];
  const GroupPlace place = parts_.group->place();
  if (place.ranks() > 1) groups.line = parts_.job->topology.LineGroup(program_.rank);
  if (place.experts > 1) groups.world = parts_.job->topology.WorldGroup();
  const auto stages = static_cast<uint32_t>(program_.layers_per_stage.size());
  return ReduceNormAndVotes(parts_, stages, groups, ballot);
}

absl::Status Iteration::CheckReduced() const {
  for (const Instruction& earlier : program_.instructions) {
    const bool sums = earlier.op == Op::kReduceGradients || earlier.op == Op::kReshard;
    if (!sums || parts_.order->Awaited(earlier.id)) continue;
    return absl::InternalError(absl::StrCat("the program does not wait for ", Describe(program_, earlier)));
  }
  return absl::OkStatus();
}

absl::Status Iteration::StepOptimizer(const Instruction& instruction) {
  PENSTOCK_RETURN_IF_ERROR(CheckReduced());
  if (parts_.optimizer->sharding().divided) {
    for (const auto& [number, _] : parts_.stages) {
      if (reductions_.groups().contains(number)) continue;
      return absl::InternalError(absl::StrCat("the gradients of stage ", number,
                                              " were not reduced, but the optimizer's state is divided"));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(SumOverRanks(instruction));
  if (parts_.gradients_ready) PENSTOCK_RETURN_IF_ERROR(ShowGradients());
  PENSTOCK_ASSIGN_OR_RETURN(part_squares_, CallTorch("the norms by part", [&] {
                              return parts_.optimizer->part_squares().OfGradients();
                            }));
  learning_rate_ = parts_.optimizer->learning_rate(program_.iteration);
  PENSTOCK_ASSIGN_OR_RETURN(const StepScale scale,
                            ScaleOfStep(*norm_and_votes_, parts_.job->training.clip_norm,
                                        /*learnt=*/program_.loss_tokens > 0));
  if (parts_.step_begins) PENSTOCK_RETURN_IF_ERROR(BeginStep());
  PENSTOCK_RETURN_IF_ERROR(parts_.optimizer->Step(program_.iteration, scale));
  PENSTOCK_RETURN_IF_ERROR(GatherFromReplicas(&FlatParameters::values));
  // Those that went to shares are 0.
  if (parts_.resharding != nullptr) return absl::OkStatus();
  for (const auto& [number, stage] : parts_.stages) stage->ZeroGradients();
  return absl::OkStatus();
}

// A rank that is lost leaves the device in a sum that an abort ends, as if it were there.
absl::Status Iteration::BeginStep() const {
  PENSTOCK_RETURN_IF_ERROR(Read("the gradient norm", norm_and_votes_->norm).status());
  PENSTOCK_RETURN_IF_ERROR(parts_.communicator->status());
  parts_.step_begins();
  return absl::OkStatus();
}

absl::Status Iteration::ShowGradients() {
  IterationResult result;
  PENSTOCK_RETURN_IF_ERROR(ReadNormAndVotes(result));
  if (!not_finite_.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(GatherFromReplicas(&FlatParameters::gradients));
  return parts_.gradients_ready(program_.iteration);
}

absl::Status Iteration::GatherFromReplicas(at::Tensor FlatParameters::*buffer) {
  for (const auto& [number, stage] : parts_.stages) {
    for (const Holders holders : {Holders::kOfTensorRank, Holders::kOfExperts}) {
      if (!parts_.optimizer->shardings().Of(holders).divided) continue;
      const FlatParameters& flat = stage->flat_parameters();
      PENSTOCK_ASSIGN_OR_RETURN(const std::vector<at::Tensor> spans, SpansOf(flat.*buffer, flat, holders));
      PENSTOCK_RETURN_IF_ERROR(parts_.communicator->AllGather(spans, reductions_.GroupOf(number, holders)));
    }
  }
  return absl::OkStatus();
}

absl::Status Iteration::Finish(IterationResult& result) {
  PENSTOCK_RETURN_IF_ERROR(parts_.order->Finish());
  for (const at::Tensor& loss : losses_) {
    PENSTOCK_ASSIGN_OR_RETURN(const double value, Read("the loss", loss));
    result.loss += value;
  }
  PENSTOCK_RETURN_IF_ERROR(AddTasks(result));
  result.learning_rate = learning_rate_;
  if (!norm_and_votes_.has_value()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(ReadPartNorms(result));
  return ReadNormAndVotes(result);
}

absl::Status Iteration::ReadPartNorms(IterationResult& result) const {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor squares, parts_.device->ToHost(part_squares_));
  for (const ModelPart part : parts_.optimizer->part_squares().parts()) {
    const auto number = static_cast<uint32_t>(part);
    result.parts.push_back({.part = number, .norm = std::sqrt(squares.const_data_ptr<double>()[number])});
  }
  return absl::OkStatus();
}

absl::Status Iteration::AddTasks(IterationResult& result) const {
  std::map<uint32_t, MeasuredTask> tasks;
  for (const RunLosses& micro_batch : run_losses_) {
    PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor losses, parts_.device->ToHost(micro_batch.losses));
    for (size_t i = 0; i < micro_batch.runs.size(); ++i) {
      const LossRun& run = micro_batch.runs[i];
      MeasuredTask& task = tasks.try_emplace(run.task, MeasuredTask{.task = run.task}).first->second;
      task.loss += losses.const_data_ptr<double>()[i];
      task.weight += run.weight;
    }
  }
  for (const auto& [_, task] : tasks) result.tasks.push_back(task);
  return absl::OkStatus();
}

absl::Status Iteration::ReadNormAndVotes(IterationResult& result) {
  PENSTOCK_ASSIGN_OR_RETURN(result.gradient_norm, Read("the gradient norm", norm_and_votes_->norm));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor ballot, parts_.device->ToHost(norm_and_votes_->ballot));
  result.votes = VotesOf(ballot);
  if (result.votes.loss_not_finite) {
    not_finite_ = "the loss";
  } else if (!std::isfinite(result.gradient_norm)) {
    not_finite_ = "the norm of the gradients";
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Iteration::Read(absl::string_view what, const at::Tensor& scalar) const {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor host, parts_.device->ToHost(scalar));
  return CallTorch(what, [&] { return host.item<double>(); });
}

}  // namespace penstock::worker
