// Divides layers over the stages of a pipeline so that its ranks have equal work, counted in time: embeddings
// and the LM head belong to certain stages, and encoder layers cost other than decoder layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// Layers of each stage, and each stage's rank.
struct StageLayout {
  std::vector<uint32_t> layers;
  std::vector<int32_t> position_of_stage;
};

// Moves a layer from one stage to another; false, and nothing has changed, when none would be left.
bool MoveLayer(size_t from, size_t to, StageLayout* layout);

// The job with these stages.
Job WithStages(const Job& job, const StageLayout& layout);

// Forward and backward time of each rank for a micro-batch without recompute.
std::vector<int64_t> RankTimes(const CostModel& costs, const LayerCosts& layers);

// Moves single layers between stages as long as that lowers, in this order: bytes above `static_bytes` (what
// weights, gradients and optimizer state of a rank may take), the time of the busiest rank, the sum of
// squares of all. Starts from `layout`. `sums`: a typical micro-batch.
StageLayout BalanceStages(const Profile& profile, const Job& job, const TokenSums& sums,
                          const MemoryLimits& static_bytes, StageLayout layout, StopToken stop = {});

}  // namespace penstock::core
