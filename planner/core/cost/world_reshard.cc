#include "planner/core/cost/world_reshard.h"

#include <algorithm>
#include <vector>

namespace penstock::core {

int64_t ReshardBytesOfWorld(absl::Span<const CostModel* const> meshes) {
  int64_t ranks = 0, all = 0;
  // Of a rank of each position.
  std::vector<int64_t> of_positions;
  for (const CostModel* costs : meshes) {
    const int64_t alike = int64_t{costs->group().ranks()} * costs->topology().replicas();
    for (int position = 0; position < costs->positions(); ++position) {
      of_positions.push_back(costs->PositionParameterBytes(position));
      ranks += alike;
      all += of_positions.back() * alike;
    }
  }
  int64_t most = 0;
  // It has its own part of what it needs, and of what all others need.
  for (const int64_t bytes : of_positions)
    most = std::max(most, (std::max(bytes * (ranks - 1), all - bytes) + ranks - 1) / ranks);
  return most;
}

}  // namespace penstock::core
