#include "worker/program/topology.h"

#include <algorithm>
#include <utility>

namespace penstock::worker {
namespace {

bool Holds(const RankGroup& group, uint32_t rank) { return std::ranges::find(group, rank) != group.end(); }

void SortWithoutRepetition(RankGroup* group) {
  std::ranges::sort(*group);
  // Not std::ranges::unique, whose subrange clang 14 cannot compile with this standard library.
  group->erase(std::unique(group->begin(), group->end()), group->end());
}

RankGroup RanksOf(const ReplicaTopology& replica) {
  RankGroup ranks;
  for (const StageTopology& stage : replica.stages) {
    ranks.insert(ranks.end(), stage.ranks.begin(), stage.ranks.end());
  }
  SortWithoutRepetition(&ranks);
  return ranks;
}

// Those of `rank` between two neighbouring stages that are not there yet.
void AddLinks(const StageTopology& below, const StageTopology& above, uint32_t rank,
              std::vector<RankGroup>& links) {
  for (const uint32_t lower : below.ranks) {
    for (const uint32_t upper : above.ranks) {
      RankGroup link = {std::min(lower, upper), std::max(lower, upper)};
      if (lower == upper || !Holds(link, rank) || std::ranges::find(links, link) != links.end()) continue;
      links.push_back(std::move(link));
    }
  }
}

}  // namespace

std::vector<RankGroup> Topology::LinksOf(uint32_t rank) const {
  std::vector<RankGroup> links;
  for (const ReplicaTopology& replica : replicas) {
    // First the links above even stages: they have no rank in common, where each stage has its own.
    for (const size_t parity : {size_t{0}, size_t{1}}) {
      for (size_t stage = parity; stage + 1 < replica.stages.size(); stage += 2) {
        AddLinks(replica.stages[stage], replica.stages[stage + 1], rank, links);
      }
    }
  }
  return links;
}

uint32_t Topology::ranks() const { return static_cast<uint32_t>(WorldGroup().size()); }

std::vector<uint32_t> Topology::StagesOf(uint32_t rank) const {
  std::vector<uint32_t> stages;
  for (const ReplicaTopology& replica : replicas) {
    for (uint32_t stage = 0; stage < replica.stages.size(); ++stage) {
      if (Holds(replica.stages[stage].ranks, rank)) stages.push_back(stage);
    }
  }
  return stages;
}

RankGroup Topology::WorldGroup() const {
  RankGroup world;
  for (const ReplicaTopology& replica : replicas) {
    const RankGroup ranks = RanksOf(replica);
    world.insert(world.end(), ranks.begin(), ranks.end());
  }
  SortWithoutRepetition(&world);
  return world;
}

RankGroup Topology::PipelineGroup(uint32_t rank) const {
  for (const ReplicaTopology& replica : replicas) {
    RankGroup ranks = RanksOf(replica);
    if (Holds(ranks, rank)) return ranks;
  }
  return {};
}

std::vector<RankGroup> Topology::GradientGroups(uint32_t rank) const {
  std::vector<RankGroup> groups;
  const size_t stages = replicas.empty() ? 0 : replicas.front().stages.size();
  for (size_t stage = 0; stage < stages; ++stage) {
    RankGroup group;
    for (const ReplicaTopology& replica : replicas) {
      const RankGroup& ranks = replica.stages[stage].ranks;
      group.insert(group.end(), ranks.begin(), ranks.end());
    }
    SortWithoutRepetition(&group);
    if (Holds(group, rank) && std::ranges::find(groups, group) == groups.end()) {
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<RankGroup> Topology::GroupsOf(uint32_t rank) const {
  std::vector<RankGroup> groups = GradientGroups(rank);
  groups.push_back(PipelineGroup(rank));
  groups.push_back(WorldGroup());
  return groups;
}

}  // namespace penstock::worker
