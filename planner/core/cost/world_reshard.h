// What a RESHARD moves where several meshes run side by side.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// The most that any rank of all sends or receives (execution.md, section 7). For World::reshard_bytes.
int64_t ReshardBytesOfWorld(absl::Span<const CostModel* const> meshes);

}  // namespace penstock::core
