// The account of memory that searches use: it knows nothing of transfers that are under way. The exact one is
// that of the programs; where it is above the limit, the planner gives the search less memory, and at last
// lets it be careful.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// What a micro-batch holds on a stage between its forward and backward pass.
int64_t HeldBytes(const CostModel& costs, int stage, const StageMemory& memory,
                  const StageRecompute& recompute);

// Buffers of transfers that are counted around a pass.
enum class TransferBuffers : uint8_t {
  // Those of its own micro-batch: all that one needs that is alone on a rank.
  kOwn,
  // Also those of a micro-batch before and one after it, as if all were alive together.
  kNeighbours,
};

// What comes and goes around a forward pass: its transient peak, and the activation that is sent.
int64_t ForwardPassingBytes(const StageMemory& memory, TransferBuffers buffers);

// What comes and goes around a backward pass: the transient peak, as if layers were made again, the gradient
// that arrives and the one that is sent.
int64_t PassingBytes(const StageMemory& memory, TransferBuffers buffers);

// Around either pass, whichever takes more.
int64_t MostPassingBytes(const StageMemory& memory, TransferBuffers buffers);

// Element by element the larger one.
void Enlarge(const StageMemory& by, StageMemory* memory);
// What no rank of a stage group is above: `shares` are those of its context ranks.
StageMemory LargestMemory(const CostModel& costs, int stage, absl::Span<const Share> shares);
// Of all stages, which takes far less time than one after another.
void LargestMemories(const CostModel& costs, absl::Span<const Share> shares,
                     std::vector<StageMemory>* stages);

}  // namespace penstock::core
