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

StageMemory Larger(const StageMemory& a, const StageMemory& b) {
  StageMemory larger = a;
  for (size_t kind = 0; kind < larger.stored_layer.size(); ++kind) {
    for (size_t level = 0; level < larger.stored_layer[kind].size(); ++level) {
      larger.stored_layer[kind][level] = std::max(a.stored_layer[kind][level], b.stored_layer[kind][level]);
    }
  }
  for (size_t kind = 0; kind < larger.peak_layer.size(); ++kind) {
    for (size_t level = 0; level < larger.peak_layer[kind].size(); ++level)
      larger.peak_layer[kind][level] = std::max(a.peak_layer[kind][level], b.peak_layer[kind][level]);
    larger.peak_split[kind] = std::max(a.peak_split[kind], b.peak_split[kind]);
  }
  larger.stored_head = std::max(a.stored_head, b.stored_head);
  larger.peak = std::max(a.peak, b.peak);
  larger.peak_head = std::max(a.peak_head, b.peak_head);
  larger.head = std::max(a.head, b.head);
  larger.gathered = std::max(a.gathered, b.gathered);
  larger.keys_values = std::max(a.keys_values, b.keys_values);
  larger.rows = std::max(a.rows, b.rows);
  larger.gathered_operands = std::max(a.gathered_operands, b.gathered_operands);
  larger.input = std::max(a.input, b.input);
  larger.output = std::max(a.output, b.output);
  larger.tokens = std::max(a.tokens, b.tokens);
  return larger;
}

void LargestMemories(const CostModel& costs, absl::Span<const Share> shares,
                     std::vector<StageMemory>* stages) {
  const MemoryModel& model = costs.memory_model();
  stages->resize(costs.stages());
  for (const Share& share : shares) {
    const ShareMemory of_share = model.OfShare(share);
    for (int stage = 0; stage < costs.stages(); ++stage) {
      StageMemory& largest = (*stages)[stage];
      const bool is_first = &share == &shares.front();
      largest = is_first ? model.OnStage(stage, share, of_share)
                         : Larger(largest, model.OnStage(stage, share, of_share));
    }
  }
}

StageMemory LargestMemory(const CostModel& costs, int stage, absl::Span<const Share> shares) {
  StageMemory largest = costs.Memory(stage, shares.front());
  for (const Share& share : shares.subspan(1)) largest = Larger(largest, costs.Memory(stage, share));
  return largest;
}

}  // namespace penstock::core
