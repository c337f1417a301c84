#include "planner/core/topology/topology.h"

#include <algorithm>
#include <cstddef>

namespace penstock::core {

Topology::Topology(const PipelineShape& shape, int replicas) {
  for (int replica = 0; replica < replicas; ++replica) {
    Replica& made = replicas_.emplace_back();
    made.shape = shape;
    for (int position = 0; position < shape.positions; ++position) {
      std::vector<int32_t>& group = made.groups.emplace_back();
      for (int context = 0; context < shape.group.context; ++context) {
        for (int tensor = 0; tensor < shape.group.tensor; ++tensor) {
          group.push_back(ranks());
          places_.push_back({replica, position, context, tensor});
        }
      }
    }
  }
}

std::vector<int32_t> Topology::StagesOf(int rank) const {
  const RankPlace place = PlaceOf(rank);
  const std::vector<int32_t>& positions = pipeline(place.replica).position_of_stage;
  std::vector<int32_t> stages;
  for (size_t stage = 0; stage < positions.size(); ++stage) {
    if (positions[stage] == place.position) stages.push_back(static_cast<int32_t>(stage));
  }
  return stages;
}

std::vector<int32_t> Topology::PipelineGroup(int replica) const {
  std::vector<int32_t> ranks;
  for (const std::vector<int32_t>& group : replicas_[replica].groups) {
    ranks.insert(ranks.end(), group.begin(), group.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int32_t> Topology::GradientGroup(int stage, int tensor) const {
  return EveryPlace(stage, tensor, shape().group.tensor);
}

std::vector<int32_t> Topology::ExpertGradientGroup(int stage, int expert) const {
  return EveryPlace(stage, expert, shape().group.expert);
}

std::vector<int32_t> Topology::EveryPlace(int stage, int first, int step) const {
  std::vector<int32_t> ranks;
  for (int replica = 0; replica < replicas(); ++replica) {
    for (int place = first; place < pipeline(replica).group.ranks(); place += step)
      ranks.push_back(RankOf(replica, stage, place));
  }
  return ranks;
}

}  // namespace penstock::core
