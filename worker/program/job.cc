#include "worker/program/job.h"

#include <algorithm>

namespace penstock::worker {

uint32_t StrategyConfig::ranks() const {
  uint32_t ranks = 0;
  for (const MeshConfig& mesh : meshes) ranks += mesh.ranks();
  return ranks;
}

uint32_t JobConfig::world_size() const { return ranks > 0 ? ranks : mesh().ranks(); }

std::vector<uint32_t> JobConfig::ShareWeights() const {
  return share_weights.empty() ? std::vector<uint32_t>(world_size(), 1) : share_weights;
}

uint32_t JobConfig::strategy_count() const {
  return std::max(uint32_t{1}, static_cast<uint32_t>(strategies.size()));
}

std::vector<MeshConfig> JobConfig::MeshesOf(uint32_t strategy) const {
  return strategies.empty() ? std::vector<MeshConfig>{mesh()} : strategies[strategy].meshes;
}

bool JobConfig::Knows(uint32_t strategy) const {
  return strategy < strategy_count() || added_strategies.contains(strategy);
}

JobConfig JobConfig::Of(uint32_t strategy, uint32_t rank) const {
  JobConfig job = *this;
  job.strategies.clear();
  job.added_strategies.clear();
  if (strategies.empty()) return job;
  const StrategyConfig& chosen =
      strategy < strategies.size() ? strategies[strategy] : *added_strategies.at(strategy);
  const MeshConfig* own = &chosen.meshes.front();
  uint32_t end = 0;
  for (const MeshConfig& mesh : chosen.meshes) {
    own = &mesh;
    end += mesh.ranks();
    if (rank < end) break;
  }
  job.pipeline = own->pipeline;
  job.replicas = own->replicas;
  job.context = own->context;
  job.tensor = own->tensor;
  job.expert = own->expert;
  job.topology = chosen.topology;
  job.ranks = chosen.meshes.size() > 1 ? chosen.ranks() : 0;
  return job;
}

}  // namespace penstock::worker
