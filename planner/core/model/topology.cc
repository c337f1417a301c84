#include "planner/core/model/topology.h"

#include <cstddef>

namespace penstock::core {

Topology::Topology(const PipelineShape& shape, int replicas) {
  for (int replica = 0; replica < replicas; ++replica) {
    Replica& made = replicas_.emplace_back();
    made.shape = shape;
    for (int position = 0; position < shape.ranks; ++position) {
      made.ranks.push_back(ranks());
      places_.push_back({replica, position});
    }
  }
}

std::vector<int32_t> Topology::StagesOf(int rank) const {
  const RankPlace place = PlaceOf(rank);
  const std::vector<int32_t>& positions = pipeline(place.replica).rank_of_stage;
  std::vector<int32_t> stages;
  for (size_t stage = 0; stage < positions.size(); ++stage) {
    if (positions[stage] == place.position) stages.push_back(static_cast<int32_t>(stage));
  }
  return stages;
}

std::vector<int32_t> Topology::GradientGroup(int stage) const {
  std::vector<int32_t> ranks;
  ranks.reserve(replicas_.size());
  for (int replica = 0; replica < replicas(); ++replica) ranks.push_back(RankOf(replica, stage));
  return ranks;
}

}  // namespace penstock::core
