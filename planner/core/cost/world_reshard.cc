#include "planner/core/cost/world_reshard.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace penstock::core {

WorldReshard ReshardOfWorld(absl::Span<const CostModel* const> meshes) {
  int64_t ranks = 0, all = 0;
  // Of a rank of each position.
  std::vector<int64_t> of_positions;
  WorldReshard world = {.fewest_layers = std::numeric_limits<int64_t>::max()};
  for (const CostModel* costs : meshes) {
    const int64_t alike = int64_t{costs->group().ranks()} * costs->topology().replicas();
    for (int position = 0; position < costs->positions(); ++position) {
      of_positions.push_back(costs->PositionParameterBytes(position));
      ranks += alike;
      all += of_positions.back() * alike;
      world.fewest_layers = std::min(world.fewest_layers, costs->PositionLayers(position));
    }
  }
  // It has its own part of what it needs, and of what all others need.
  for (const int64_t bytes : of_positions)
    world.bytes = std::max(world.bytes, (std::max(bytes * (ranks - 1), all - bytes) + ranks - 1) / ranks);
  return world;
}

}  // namespace penstock::core
