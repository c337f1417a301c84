// What a RESHARD moves where several meshes run side by side.
#pragma once

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/topology/world.h"

namespace penstock::core {

// Of all ranks (execution.md, section 7).
WorldReshard ReshardOfWorld(absl::Span<const CostModel* const> meshes);

}  // namespace penstock::core
