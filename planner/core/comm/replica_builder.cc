#include "planner/core/comm/replica_builder.h"

#include <utility>

namespace penstock::core {
namespace {

Instruction MakeInstruction(Op op, Stream stream, const PipelineEvent& event, uint8_t part) {
  Instruction instruction;
  instruction.op = op;
  instruction.stream = stream;
  instruction.part = part;
  instruction.micro_batch = event.micro_batch;
  instruction.stage = event.stage;
  return instruction;
}

}  // namespace

int32_t RankProgram::Add(Instruction instruction, std::initializer_list<int32_t> instruction_deps) {
  instruction.deps_begin = static_cast<int32_t>(deps.size());
  for (const int32_t dep : instruction_deps) {
    if (dep >= 0) deps.push_back(dep);
  }
  instruction.deps_end = static_cast<int32_t>(deps.size());
  instructions.push_back(instruction);
  return static_cast<int32_t>(instructions.size()) - 1;
}

ReplicaBuilder::ReplicaBuilder(const CostModel& costs, const ReplicaPipeline& pipeline)
    : costs_(costs),
      pipeline_(pipeline),
      programs_(costs.stages()),
      ids_(pipeline.memory.size()),
      lent_(costs.stages()),
      activations_(costs.stages(), 0),
      gradients_(costs.stages(), 0) {
  // At most 14 instructions and 12 deps for a micro-batch on a stage.
  for (RankProgram& program : programs_) {
    program.instructions.reserve(14 * static_cast<size_t>(pipeline.costs.micro_batches) + 2);
    program.deps.reserve(12 * static_cast<size_t>(pipeline.costs.micro_batches) + 2);
  }
  transfers_.reserve(2 * pipeline.memory.size());
}

void ReplicaBuilder::Build(const std::vector<PipelineEvent>& events) {
  for (const PipelineEvent& event : events) {
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
        EndTransfer(event);
        break;
    }
  }
  for (int stage = 0; stage < costs_.stages(); ++stage) GiveBack(stage, /*all=*/true);
}

int32_t ReplicaBuilder::Wait(int stage, int32_t micro_batch, WaitPart part, int32_t transfer) {
  Instruction wait = MakeInstruction(Op::kWait, Stream::kCompute,
                                     {EventKind::kPassStart, false, stage, micro_batch, 0}, part);
  wait.waits_for = transfer;
  return programs_[stage].Add(wait, {transfer});
}

void ReplicaBuilder::GiveBack(int stage, bool all) {
  std::vector<Lent>& lent = lent_[stage];
  size_t kept = 0;
  for (const Lent& buffer : lent) {
    if (!buffer.ended && !all) {
      lent[kept++] = buffer;
      continue;
    }
    const int32_t wait =
        Wait(stage, buffer.micro_batch, buffer.gradient ? kSentGradient : kSentActivation, buffer.send);
    Instruction free = MakeInstruction(Op::kFree, Stream::kCompute,
                                       {EventKind::kPassStart, false, stage, buffer.micro_batch, 0},
                                       buffer.gradient ? kInputGradient : kOutputActivation);
    free.released_bytes = buffer.bytes;
    programs_[stage].Add(free, {wait});
  }
  lent.resize(kept);
}

void ReplicaBuilder::StartPass(const PipelineEvent& event) {
  GiveBack(event.stage, /*all=*/false);
  PassIds& ids = Ids(event);
  if (event.backward) {
    if (ids.receive_gradient >= 0) {
      ids.wait_gradient = Wait(event.stage, event.micro_batch, kReceivedGradient, ids.receive_gradient);
    }
    return;
  }
  const Stage& stage = costs_.stage(event.stage);
  if (stage.first || stage.last) {
    Instruction load = MakeInstruction(Op::kLoad, Stream::kCompute, event, 0);
    load.acquired_bytes = pipeline_.memory[pipeline_.costs.at(event.micro_batch, event.stage)].tokens;
    ids.load = programs_[event.stage].Add(load, {});
  }
  if (ids.receive_activation >= 0) {
    ids.wait_activation = Wait(event.stage, event.micro_batch, kReceivedActivation, ids.receive_activation);
  }
}

void ReplicaBuilder::EndPass(const PipelineEvent& event) {
  PassIds& ids = Ids(event);
  RankProgram& program = programs_[event.stage];
  const size_t at = pipeline_.costs.at(event.micro_batch, event.stage);
  const StageMemory& memory = pipeline_.memory[at];
  const int64_t stored = costs_.StoredBytes(event.stage, memory, pipeline_.recompute[at]);
  if (!event.backward) {
    Instruction forward = MakeInstruction(Op::kForward, Stream::kCompute, event, 0);
    forward.duration_ns = pipeline_.costs.forward_ns[at];
    forward.acquired_bytes = stored + memory.output;
    ids.forward = program.Add(forward, {ids.load, ids.wait_activation});
    return;
  }
  Instruction backward = MakeInstruction(Op::kBackward, Stream::kCompute, event, 0);
  backward.duration_ns = pipeline_.costs.backward_ns[at];
  backward.acquired_bytes = memory.peak + memory.input;
  // The peak, what was stored, the received activation, and the received gradient.
  backward.released_bytes = memory.peak + stored + memory.input + memory.output;
  ids.backward = program.Add(backward, {ids.forward, ids.wait_gradient});
  program.last_backward = ids.backward;
  if (ids.load < 0) return;
  Instruction free = MakeInstruction(Op::kFree, Stream::kCompute, event, kLoadedTokens);
  free.released_bytes = memory.tokens;
  program.Add(free, {ids.backward});
}

void ReplicaBuilder::StartTransfer(const PipelineEvent& event) {
  // An activation goes from `stage` to the next, its gradient comes back.
  const int from = event.backward ? event.stage + 1 : event.stage;
  const int to = event.backward ? event.stage : event.stage + 1;
  const size_t at = pipeline_.costs.at(event.micro_batch, event.stage);
  PassIds& from_ids = ids_[pipeline_.costs.at(event.micro_batch, from)];
  PassIds& to_ids = ids_[pipeline_.costs.at(event.micro_batch, to)];
  Transfer transfer;
  transfer.from_rank = from;
  transfer.to_rank = to;
  transfer.bytes = pipeline_.memory[at].output;
  transfer.sequence = event.backward ? gradients_[event.stage]++ : activations_[event.stage]++;
  transfer.order = static_cast<int32_t>(transfers_.size());

  const uint8_t part = event.backward ? kGradientPart : kActivationPart;
  Instruction send =
      MakeInstruction(Op::kSend, event.backward ? Stream::kPrevious : Stream::kNext, event, part);
  send.stage = from;
  send.joint = transfer.order;
  send.duration_ns = pipeline_.costs.transfer_ns[at];
  transfer.send = programs_[from].Add(send, {event.backward ? from_ids.backward : from_ids.forward});

  Instruction recv = send;
  recv.op = Op::kRecv;
  recv.stream = event.backward ? Stream::kNext : Stream::kPrevious;
  recv.stage = to;
  recv.acquired_bytes = transfer.bytes;
  transfer.recv = programs_[to].Add(recv, {});
  (event.backward ? to_ids.receive_gradient : to_ids.receive_activation) = transfer.recv;

  lent_[from].push_back({transfer.send, event.micro_batch, event.backward, false, transfer.bytes});
  transfers_.push_back(transfer);
}

void ReplicaBuilder::EndTransfer(const PipelineEvent& event) {
  const int from = event.backward ? event.stage + 1 : event.stage;
  for (Lent& buffer : lent_[from]) {
    if (buffer.micro_batch == event.micro_batch && buffer.gradient == event.backward) buffer.ended = true;
  }
}

}  // namespace penstock::core
