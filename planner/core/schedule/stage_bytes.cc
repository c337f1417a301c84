#include "planner/core/schedule/stage_bytes.h"

#include <algorithm>

namespace penstock::core {

int64_t HeldBytes(const CostModel& costs, int stage, const StageMemory& memory,
                  const StageRecompute& recompute) {
  return costs.StoredBytes(stage, memory, recompute) + memory.input + memory.tokens;
}

int64_t ForwardPassingBytes(const StageMemory& memory, TransferBuffers buffers) {
  const int64_t others = buffers == TransferBuffers::kNeighbours ? 2 * (memory.input + memory.output) : 0;
  return memory.forward_peak() + memory.output + others;
}

int64_t PassingBytes(const StageMemory& memory, TransferBuffers buffers) {
  const int64_t counted = buffers == TransferBuffers::kNeighbours ? 3 : 1;
  return memory.backward_peak() + counted * (memory.input + memory.output);
}

int64_t MostPassingBytes(const StageMemory& memory, TransferBuffers buffers) {
  return std::max(ForwardPassingBytes(memory, buffers), PassingBytes(memory, buffers));
}

void Enlarge(const StageMemory& by, StageMemory* memory) {
  const auto enlarge = [&](auto StageMemory::*member) {
    memory->*member = std::max(memory->*member, by.*member);
  };
  for (size_t kind = 0; kind < by.stored_layer.size(); ++kind) {
    for (size_t level = 0; level < by.stored_layer[kind].size(); ++level) {
      int64_t& stored = memory->stored_layer[kind][level];
      stored = std::max(stored, by.stored_layer[kind][level]);
      int64_t& peak = memory->peak_layer[kind][level];
      peak = std::max(peak, by.peak_layer[kind][level]);
    }
    memory->peak_split[kind] = std::max(memory->peak_split[kind], by.peak_split[kind]);
  }
  enlarge(&StageMemory::stored_head);
  enlarge(&StageMemory::peak);
  enlarge(&StageMemory::peak_head);
  enlarge(&StageMemory::head);
  enlarge(&StageMemory::gathered);
  enlarge(&StageMemory::keys_values);
  enlarge(&StageMemory::carried_keys);
  enlarge(&StageMemory::rows);
  enlarge(&StageMemory::gathered_operands);
  enlarge(&StageMemory::input);
  enlarge(&StageMemory::output);
  enlarge(&StageMemory::tokens);
}

void LargestMemories(const CostModel& costs, absl::Span<const Share> shares,
                     std::vector<StageMemory>* stages) {
  const ShareMemory of_shares = costs.memory_model().OfShares(shares);
  stages->resize(costs.stages());
  for (int stage = 0; stage < costs.stages(); ++stage)
    costs.memory_model().OnStage(stage, shares, of_shares, &(*stages)[stage]);
}

StageMemory LargestMemory(const CostModel& costs, int stage, absl::Span<const Share> shares) {
  return costs.memory_model().OnStage(stage, shares);
}

}  // namespace penstock::core
