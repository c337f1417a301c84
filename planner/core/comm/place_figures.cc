#include "planner/core/comm/place_figures.h"

#include <algorithm>

namespace penstock::core {

PlaceFigures::PlaceFigures(const CostModel& costs, const ReplicaPipeline& pipeline, const Topology& topology,
                           int rank, int32_t first_pass)
    : costs_(costs),
      pipeline_(pipeline),
      rank_(rank),
      place_(topology.PlaceOf(rank)),
      next_pass_(first_pass) {}

int64_t PlaceFigures::BoundaryBytes(int stage, int32_t micro_batch) const {
  const size_t at = pipeline_.costs.at(micro_batch, stage);
  if (!is_group()) return MemoryAt(at).output;
  return costs_.BoundaryBytes(stage, pipeline_.contexts[ContextAt(at)].sums, place_.tensor);
}

int64_t PlaceFigures::TransferNs(int stage, int32_t micro_batch, int other_rank) const {
  // The pipeline's of activations are not those of gradients where links are slow.
  if (!is_group() && !costs_.slow_links().any())
    return pipeline_.costs.transfer_ns[pipeline_.costs.at(micro_batch, stage)];
  return costs_.TransferNs(BoundaryBytes(stage, micro_batch), rank_, other_rank);
}

void PlaceFigures::Fill(Instruction* instruction, std::vector<PassExchange>* exchanges) {
  switch (instruction->op) {
    case Op::kLoad:
      instruction->acquired_bytes = MemoryAt(At(*instruction)).tokens;
      break;
    case Op::kForward:
      FillForward(instruction);
      break;
    case Op::kBackward:
    case Op::kBackwardInput:
      FillBackward(instruction);
      break;
    case Op::kBackwardWeight:
      FillWeight(instruction);
      break;
    case Op::kFree:
      FillFree(instruction);
      break;
    case Op::kReduceGradients:
      instruction->joint = instruction->stage * costs_.group().tensor + place_.tensor;
      instruction->duration_ns = costs_.ReduceNs(instruction->stage, place_.tensor);
      break;
    case Op::kReshard:
      instruction->joint = instruction->part;
      instruction->duration_ns = costs_.ReshardNs();
      break;
    case Op::kOptimizerStep:
      FillStep(instruction);
      break;
    case Op::kSend:
    case Op::kRecv:
    case Op::kWait:
      break;
  }
  if (!is_group() || !IsPass(instruction->op)) return;
  const ContextPass& own = pipeline_.contexts[ContextAt(At(*instruction))];
  switch (instruction->op) {
    case Op::kForward:
      return MakeJoint(own.forward_ns, &own.forward, instruction, exchanges);
    case Op::kBackward:
      return MakeJoint(own.backward_ns, &own.backward, instruction, exchanges);
    case Op::kBackwardInput:
      return MakeJoint(own.backward_ns - own.weight_ns, &own.backward, instruction, exchanges);
    default:
      return MakeJoint(own.weight_ns, nullptr, instruction, exchanges);
  }
}

void PlaceFigures::FillForward(Instruction* forward) {
  const size_t at = At(*forward);
  const StageMemory& memory = MemoryAt(at);
  forward->duration_ns = pipeline_.costs.forward_ns[at];
  const int64_t output =
      forward->stage + 1 < costs_.stages() ? BoundaryBytes(forward->stage, forward->micro_batch) : 0;
  if (pipeline_.forward_only()) {
    const int64_t input = forward->stage > 0 ? BoundaryBytes(forward->stage - 1, forward->micro_batch) : 0;
    forward->acquired_bytes = memory.forward_alone_peak() + output;
    forward->released_bytes = memory.forward_alone_peak() + input;
    return;
  }
  forward->acquired_bytes =
      costs_.StoredBytes(forward->stage, memory, pipeline_.recompute[at]) + output + memory.forward_peak();
  forward->released_bytes = memory.forward_peak();
}

void PlaceFigures::FillBackward(Instruction* backward) {
  const size_t at = At(*backward);
  const int stage = backward->stage;
  const StageMemory& memory = MemoryAt(at);
  const bool split = backward->op == Op::kBackwardInput;
  const int64_t stored = costs_.StoredBytes(stage, memory, pipeline_.recompute[at]);
  const int64_t kept = split ? costs_.PutAsideBytes(stage, memory) : 0;
  const int64_t input = stage > 0 ? BoundaryBytes(stage - 1, backward->micro_batch) : 0;
  const int64_t output = stage + 1 < costs_.stages() ? BoundaryBytes(stage, backward->micro_batch) : 0;
  backward->duration_ns = pipeline_.costs.backward_ns[at];
  if (split) backward->duration_ns -= pipeline_.costs.weight_ns[at];
  const int64_t peak = split ? costs_.InputBackwardPeak(stage, memory)
                             : costs_.BackwardPeak(stage, memory, pipeline_.recompute[at]);
  // The peak, the gradient of the input, and what is put aside beyond what was stored.
  backward->acquired_bytes = peak + input + std::max<int64_t>(0, kept - stored);
  // The peak, what was stored but is not put aside, and two buffers: the received activation, whose place is
  // taken by the gradient of the input where the stage below is on the same rank; and the received gradient,
  // or there the output, which then held it.
  backward->released_bytes = peak + std::max<int64_t>(0, stored - kept) + input + output;
}

void PlaceFigures::FillWeight(Instruction* weight) {
  const size_t at = At(*weight);
  weight->duration_ns = pipeline_.costs.weight_ns[at];
  weight->released_bytes = costs_.PutAsideBytes(weight->stage, MemoryAt(at));
}

void PlaceFigures::FillFree(Instruction* free) const {
  switch (free->part) {
    case kLoadedTokens:
      free->released_bytes = MemoryAt(At(*free)).tokens;
      return;
    case kInputGradient:
      free->released_bytes = BoundaryBytes(free->stage - 1, free->micro_batch);
      return;
    default:
      free->released_bytes = BoundaryBytes(free->stage, free->micro_batch);
  }
}

void PlaceFigures::FillStep(Instruction* step) const {
  step->joint =
      costs_.has_shares() ? kStepOfShares : costs_.stages() * costs_.group().tensor + place_.replica;
  step->duration_ns = costs_.StepNs(rank_);
}

void PlaceFigures::MakeJoint(int64_t own_ns, const PassExchange* exchange, Instruction* pass,
                             std::vector<PassExchange>* exchanges) {
  pass->joint = next_pass_++;
  pass->own_ns = own_ns;
  if (exchange == nullptr || exchange->is_empty()) return;
  pass->exchange = static_cast<int32_t>(exchanges->size());
  exchanges->push_back(*exchange);
}

}  // namespace penstock::core
