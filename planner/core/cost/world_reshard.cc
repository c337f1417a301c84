#include "planner/core/cost/world_reshard.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/numeric/int128.h"

namespace penstock::core {
namespace {

// Of the ranks of a position: what the stages of each need, and how large their shares are.
struct PositionNeed {
  int64_t bytes = 0;
  CostModel::WeightRange weights;
};

// The part of `weight` in `all`, rounded up. Products may need more than 64 bits. Where nobody has a share
// (of a mesh whose neighbours, which have all, are not known yet), everything comes from elsewhere.
int64_t MovedPart(int64_t bytes, int64_t weight, int64_t all) {
  if (all == 0) return bytes;
  return static_cast<int64_t>((absl::uint128(bytes) * weight + (all - 1)) / all);
}

}  // namespace

WorldReshard ReshardOfWorld(absl::Span<const CostModel* const> meshes) {
  int64_t weights = 0, all = 0;
  std::vector<PositionNeed> of_positions;
  WorldReshard world = {.fewest_layers = std::numeric_limits<int64_t>::max()};
  for (const CostModel* costs : meshes) {
    const int64_t alike = int64_t{costs->group().ranks()} * costs->topology().replicas();
    for (int position = 0; position < costs->positions(); ++position) {
      of_positions.push_back({costs->PositionParameterBytes(position), costs->WeightsAt(position)});
      all += of_positions.back().bytes * alike;
      world.fewest_layers = std::min(world.fewest_layers, costs->PositionLayers(position));
    }
    weights += costs->share_weights().SumOf(costs->topology().ranks());
  }
  for (const PositionNeed& need : of_positions) {
    // What a rank receives is most where it has least itself; what it sends, where it has most.
    world.bytes = std::max({world.bytes, MovedPart(need.bytes, weights - need.weights.least, weights),
                            MovedPart(all - need.bytes, need.weights.most, weights)});
  }
  return world;
}

}  // namespace penstock::core
