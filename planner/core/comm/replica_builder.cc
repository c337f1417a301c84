#include "planner/core/comm/replica_builder.h"

#include <algorithm>

namespace penstock::core {
namespace {

// At most, for a micro-batch on a stage.
constexpr size_t kInstructions = 15;
constexpr size_t kDeps = 18;

Instruction MakeInstruction(Op op, int stage, int32_t micro_batch, uint8_t part = 0) {
  Instruction instruction;
  instruction.op = op;
  instruction.stream = Stream::kCompute;
  instruction.part = part;
  instruction.micro_batch = micro_batch;
  instruction.stage = stage;
  return instruction;
}

}  // namespace

int32_t RankProgram::Add(Instruction instruction, absl::Span<const int32_t> instruction_deps) {
  instruction.deps_begin = static_cast<int32_t>(deps.size());
  for (const int32_t dep : instruction_deps) {
    if (dep >= 0) deps.push_back(dep);
  }
  instruction.deps_end = static_cast<int32_t>(deps.size());
  instructions.push_back(instruction);
  const int32_t id = static_cast<int32_t>(instructions.size()) - 1;
  if (instruction.stream == Stream::kCompute) last_compute = id;
  return id;
}

ReplicaBuilder::ReplicaBuilder(const CostModel& costs, const ReplicaPipeline& pipeline)
    : costs_(costs),
      pipeline_(pipeline),
      programs_(costs.positions()),
      ids_(pipeline.recompute.size()),
      lent_(costs.positions()),
      under_way_(costs.stages(), -1),
      sequences_(static_cast<size_t>(costs.positions()) * costs.positions(), 0),
      open_(costs.stages(), pipeline.costs.micro_batches),
      last_backward_(costs.stages(), -1),
      next_reduction_(costs.stages() - 1) {
  const auto micro_batches = static_cast<size_t>(pipeline.costs.micro_batches);
  for (int rank = 0; rank < costs.positions(); ++rank) {
    const auto& ranks = costs.position_of_stage();
    const auto stages = static_cast<size_t>(std::count(ranks.begin(), ranks.end(), rank));
    programs_[rank].instructions.reserve((kInstructions * micro_batches + 1) * stages + 1);
    programs_[rank].deps.reserve((kDeps * micro_batches + 2) * stages);
  }
  transfers_.reserve(2 * pipeline.recompute.size());
  transfer_ended_.reserve(2 * pipeline.recompute.size());
  for (int stage = 1; stage < costs.stages() && !pipeline.forward_only(); ++stage) {
    if (Crosses(stage - 1)) open_[stage] += pipeline.costs.micro_batches;
  }
}

int ReplicaBuilder::LowestStage(int position) const {
  const auto& positions = costs_.position_of_stage();
  return static_cast<int>(std::find(positions.begin(), positions.end(), position) - positions.begin());
}

void ReplicaBuilder::Begin(int position) {
  Instruction parameters = MakeInstruction(Op::kReshard, LowestStage(position), 0, kParametersToStages);
  parameters.stream = Stream::kCollective;
  programs_[position].Add(parameters, {});
}

void ReplicaBuilder::BringBack(int position) {
  Instruction gradients = MakeInstruction(Op::kReshard, LowestStage(position), 0, kGradientsToShares);
  gradients.stream = Stream::kCollective;
  std::vector<int32_t> last;
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    if (costs_.position_of(stage) == position) last.push_back(last_backward_[stage]);
  }
  programs_[position].reductions = {programs_[position].Add(gradients, last)};
}

bool ReplicaBuilder::Build(const std::vector<PipelineEvent>& events, StopToken stop) {
  for (int position = 0; costs_.has_shares() && position < costs_.positions(); ++position) Begin(position);
  for (const PipelineEvent& event : events) {
    if (stop.stopped()) return false;
    switch (event.kind) {
      case EventKind::kPassStart:
        StartPass(event);
        break;
      case EventKind::kPassEnd:
        EndPass(event);
        break;
      case EventKind::kTransferStart:
        StartTransfer(event);
        break;
      case EventKind::kTransferEnd:
        transfer_ended_[under_way_[event.stage]] = 1;
        break;
    }
  }
  Reduce();
  for (int rank = 0; rank < costs_.positions(); ++rank) {
    GiveBack(rank, /*all=*/true);
    if (pipeline_.forward_only()) continue;
    if (costs_.has_shares()) BringBack(rank);
    programs_[rank].Add(MakeInstruction(Op::kOptimizerStep, LowestStage(rank), 0),
                        programs_[rank].reductions);
  }
  return next_reduction_ < 0;
}

int32_t ReplicaBuilder::Wait(int stage, int32_t micro_batch, WaitPart part, int32_t transfer) {
  Instruction wait = MakeInstruction(Op::kWait, stage, micro_batch, part);
  wait.waits_for = transfer;
  return ProgramOf(stage).Add(wait, {transfer});
}

void ReplicaBuilder::GiveBack(int rank, bool all) {
  std::vector<Lent>& lent = lent_[rank];
  size_t kept = 0;
  for (const Lent& buffer : lent) {
    if (transfer_ended_[buffer.transfer] == 0 && !all) {
      lent[kept++] = buffer;
      continue;
    }
    const int32_t wait = Wait(buffer.stage, buffer.micro_batch,
                              buffer.gradient ? kSentGradient : kSentActivation, buffer.send);
    Instruction free = MakeInstruction(Op::kFree, buffer.stage, buffer.micro_batch,
                                       buffer.gradient ? kInputGradient : kOutputActivation);
    programs_[rank].Add(free, {wait});
  }
  lent.resize(kept);
}

void ReplicaBuilder::StartPass(const PipelineEvent& event) {
  GiveBack(costs_.position_of(event.stage), /*all=*/false);
  PassIds& ids = Ids(event.stage, event.micro_batch);
  if (event.pass == PassKind::kBackwardWeight) return;
  if (event.pass != PassKind::kForward) {
    if (ids.receive_gradient >= 0) {
      ids.wait_gradient = Wait(event.stage, event.micro_batch, kReceivedGradient, ids.receive_gradient);
    }
    return;
  }
  if (costs_.stage(event.stage).loads()) {
    ids.load = ProgramOf(event.stage).Add(MakeInstruction(Op::kLoad, event.stage, event.micro_batch), {});
  }
  if (ids.receive_activation >= 0) {
    ids.wait_activation = Wait(event.stage, event.micro_batch, kReceivedActivation, ids.receive_activation);
  }
}

void ReplicaBuilder::EndPass(const PipelineEvent& event) {
  switch (event.pass) {
    case PassKind::kForward:
      return EndForward(event.stage, event.micro_batch);
    case PassKind::kBackward:
    case PassKind::kBackwardInput:
      return EndBackward(event.pass, event.stage, event.micro_batch);
    case PassKind::kBackwardWeight:
      return EndWeight(event.stage, event.micro_batch);
  }
}

void ReplicaBuilder::EndForward(int stage, int32_t micro_batch) {
  const int32_t below = stage > 0 && !Crosses(stage - 1) ? Ids(stage - 1, micro_batch).forward : int32_t{-1};
  PassIds& ids = Ids(stage, micro_batch);
  RankProgram& program = ProgramOf(stage);
  // The first pass waits for its parameters, and all others for the first one.
  const int32_t parameters = costs_.has_shares() && !program.has_passes ? 0 : -1;
  program.has_passes = true;
  ids.forward = program.Add(MakeInstruction(Op::kForward, stage, micro_batch),
                            {parameters, ids.load, ids.wait_activation, below});
  if (pipeline_.forward_only()) Finish(stage, micro_batch, ids.forward);
}

void ReplicaBuilder::EndBackward(PassKind kind, int stage, int32_t micro_batch) {
  const bool split = kind == PassKind::kBackwardInput;
  const int32_t above =
      stage + 1 < costs_.stages() && !Crosses(stage) ? Ids(stage + 1, micro_batch).backward : int32_t{-1};
  PassIds& ids = Ids(stage, micro_batch);
  ids.backward =
      ProgramOf(stage).Add(MakeInstruction(split ? Op::kBackwardInput : Op::kBackward, stage, micro_batch),
                           {ids.forward, ids.wait_gradient, above});
  if (!split) Finish(stage, micro_batch, ids.backward);
}

void ReplicaBuilder::EndWeight(int stage, int32_t micro_batch) {
  const int32_t id = ProgramOf(stage).Add(MakeInstruction(Op::kBackwardWeight, stage, micro_batch),
                                          {Ids(stage, micro_batch).backward});
  Finish(stage, micro_batch, id);
}

void ReplicaBuilder::Finish(int stage, int32_t micro_batch, int32_t last_pass) {
  const size_t at = At(stage, micro_batch);
  if (ids_[at].load >= 0) {
    ProgramOf(stage).Add(MakeInstruction(Op::kFree, stage, micro_batch, kLoadedTokens), {last_pass});
  }
  last_backward_[stage] = last_pass;
  --open_[stage];
  Reduce();
}

void ReplicaBuilder::Reduce() {
  for (; next_reduction_ >= 0 && open_[next_reduction_] == 0; --next_reduction_) {
    if (costs_.has_shares() || pipeline_.forward_only()) continue;
    RankProgram& program = ProgramOf(next_reduction_);
    Instruction reduction = MakeInstruction(Op::kReduceGradients, next_reduction_, 0);
    reduction.stream = Stream::kCollective;
    program.reductions.push_back(program.Add(reduction, {last_backward_[next_reduction_]}));
  }
}

void ReplicaBuilder::StartTransfer(const PipelineEvent& event) {
  // An activation goes from `stage` to the next, its gradient comes back.
  const int from = event.gradient ? event.stage + 1 : event.stage;
  const int to = event.gradient ? event.stage : event.stage + 1;
  const PassIds& from_ids = Ids(from, event.micro_batch);
  PassIds& to_ids = Ids(to, event.micro_batch);
  Transfer transfer;
  transfer.from_rank = costs_.position_of(from);
  transfer.to_rank = costs_.position_of(to);
  transfer.sequence =
      sequences_[static_cast<size_t>(transfer.from_rank) * costs_.positions() + transfer.to_rank]++;
  transfer.order = static_cast<int32_t>(transfers_.size());

  const uint8_t part = event.gradient ? kGradientPart : kActivationPart;
  Instruction send = MakeInstruction(Op::kSend, from, event.micro_batch, part);
  send.stream = event.gradient ? Stream::kPrevious : Stream::kNext;
  send.joint = transfer.order;
  transfer.send = ProgramOf(from).Add(send, {event.gradient ? from_ids.backward : from_ids.forward});

  Instruction recv = send;
  recv.op = Op::kRecv;
  recv.stream = event.gradient ? Stream::kNext : Stream::kPrevious;
  recv.stage = to;
  transfer.recv = ProgramOf(to).Add(recv, {ProgramOf(to).last_compute});
  (event.gradient ? to_ids.receive_gradient : to_ids.receive_activation) = transfer.recv;

  lent_[transfer.from_rank].push_back(
      {transfer.send, from, event.micro_batch, event.gradient, transfer.order});
  under_way_[event.stage] = transfer.order;
  transfers_.push_back(transfer);
  transfer_ended_.push_back(0);
  if (!event.gradient) return;
  --open_[from];
  Reduce();
}

}  // namespace penstock::core
