#include "planner/core/schedule/stage_bytes.h"

namespace penstock::core {

int64_t HeldBytes(const CostModel& costs, int stage, const StageMemory& memory,
                  const StageRecompute& recompute) {
  return costs.StoredBytes(stage, memory, recompute) + memory.input + memory.tokens;
}

int64_t PassingBytes(const StageMemory& memory, TransferBuffers buffers) {
  const int64_t counted = buffers == TransferBuffers::kNeighbours ? 3 : 1;
  return memory.peak + counted * (memory.input + memory.output);
}

}  // namespace penstock::core
