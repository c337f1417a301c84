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
  for (size_t place = 0; place < std::min(below.ranks.size(), above.ranks.size()); ++place) {
    const uint32_t lower = below.ranks[place];
    const uint32_t upper = above.ranks[place];
    RankGroup link = {std::min(lower, upper), std::max(lower, upper)};
    if (lower == upper || !Holds(link, rank) || std::ranges::find(links, link) != links.end()) continue;
    links.push_back(std::move(link));
  }
}

// Where in its stage group the rank is: context rank * tensor + tensor rank.
size_t IndexIn(const RankGroup& stage_group, uint32_t rank) {
  return static_cast<size_t>(std::ranges::find(stage_group, rank) - stage_group.begin());
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

const ReplicaTopology* Topology::ReplicaOf(uint32_t rank) const {
  for (const ReplicaTopology& replica : replicas) {
    for (const StageTopology& stage : replica.stages)
      if (Holds(stage.ranks, rank)) return &replica;
  }
  return nullptr;
}

uint32_t Topology::TensorRanksOf(uint32_t rank) const {
  const ReplicaTopology* const replica = ReplicaOf(rank);
  return replica == nullptr ? 1 : replica->tensor;
}

uint32_t Topology::ExpertRanksOf(uint32_t rank) const {
  const ReplicaTopology* const replica = ReplicaOf(rank);
  return replica == nullptr ? 1 : replica->expert;
}

std::vector<uint32_t> Topology::LayersPerStageOf(uint32_t rank) const {
  std::vector<uint32_t> layers;
  if (const ReplicaTopology* const replica = ReplicaOf(rank))
    for (const StageTopology& stage : replica->stages) layers.push_back(stage.layers);
  return layers;
}

RankGroup Topology::PipelineGroup(uint32_t rank) const {
  const ReplicaTopology* const replica = ReplicaOf(rank);
  return replica == nullptr ? RankGroup() : RanksOf(*replica);
}

RankGroup Topology::StageGroupOf(uint32_t rank) const {
  for (const ReplicaTopology& replica : replicas) {
    for (const StageTopology& stage : replica.stages) {
      if (Holds(stage.ranks, rank)) return stage.ranks;
    }
  }
  return {rank};
}

GroupPlace Topology::PlaceOf(uint32_t rank) const {
  const RankGroup group = StageGroupOf(rank);
  const size_t index = IndexIn(group, rank);
  const uint32_t tensor = TensorRanksOf(rank);
  return {.context = static_cast<int>(index / tensor),
          .contexts = static_cast<int>(group.size() / tensor),
          .tensor = static_cast<int>(index % tensor),
          .tensors = static_cast<int>(tensor),
          .experts = static_cast<int>(ExpertRanksOf(rank))};
}

RankGroup Topology::TensorGroup(uint32_t rank) const {
  const RankGroup group = StageGroupOf(rank);
  const uint32_t tensor = TensorRanksOf(rank);
  const size_t first = IndexIn(group, rank) / tensor * tensor;
  const auto begin = group.begin() + static_cast<ptrdiff_t>(first);
  return {begin, begin + static_cast<ptrdiff_t>(tensor)};
}

RankGroup Topology::ContextGroup(uint32_t rank) const {
  const RankGroup group = StageGroupOf(rank);
  const uint32_t tensor = TensorRanksOf(rank);
  RankGroup ranks;
  for (size_t i = IndexIn(group, rank) % tensor; i < group.size(); i += tensor) ranks.push_back(group[i]);
  return ranks;
}

RankGroup Topology::ExpertGroup(uint32_t rank) const {
  const RankGroup group = StageGroupOf(rank);
  const uint32_t expert = ExpertRanksOf(rank);
  const auto begin = group.begin() + static_cast<ptrdiff_t>(IndexIn(group, rank) / expert * expert);
  return {begin, begin + static_cast<ptrdiff_t>(expert)};
}

RankGroup Topology::ExpertHolders(uint32_t rank, uint32_t stage) const {
  const GroupPlace place = PlaceOf(rank);
  const uint32_t tensor = TensorRanksOf(rank), expert = ExpertRanksOf(rank);
  const size_t every = expert == 1 ? tensor : expert;
  const auto first = static_cast<size_t>(expert == 1 ? place.tensor : place.expert());
  RankGroup holders;
  for (const ReplicaTopology& replica : replicas) {
    const RankGroup& ranks = replica.stages[stage].ranks;
    for (size_t i = first; i < ranks.size(); i += every) holders.push_back(ranks[i]);
  }
  return holders;
}

RankGroup Topology::LineGroup(uint32_t rank) const {
  const ReplicaTopology* const replica = ReplicaOf(rank);
  if (replica == nullptr) return {};
  const size_t place = IndexIn(StageGroupOf(rank), rank);
  RankGroup line;
  for (const StageTopology& stage : replica->stages) line.push_back(stage.ranks[place]);
  SortWithoutRepetition(&line);
  return line;
}

std::vector<RankGroup> Topology::GradientGroups(uint32_t rank) const {
  std::vector<RankGroup> groups;
  const size_t stages = replicas.empty() ? 0 : replicas.front().stages.size();
  const auto tensor_rank = static_cast<size_t>(PlaceOf(rank).tensor);
  const uint32_t tensor = TensorRanksOf(rank);
  for (size_t stage = 0; stage < stages; ++stage) {
    RankGroup group;
    for (const ReplicaTopology& replica : replicas) {
      const RankGroup& ranks = replica.stages[stage].ranks;
      for (size_t i = tensor_rank; i < ranks.size(); i += tensor) group.push_back(ranks[i]);
    }
    if (Holds(group, rank) && std::ranges::find(groups, group) == groups.end()) {
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<RankGroup> Topology::GroupsOf(uint32_t rank) const {
  std::vector<RankGroup> groups = GradientGroups(rank);
  for (const uint32_t stage : StagesOf(rank)) {
    if (ExpertRanksOf(rank) > 1) groups.push_back(ExpertHolders(rank, stage));
  }
  groups.push_back(PipelineGroup(rank));
  if (PlaceOf(rank).ranks() > 1) groups.push_back(LineGroup(rank));
  groups.push_back(WorldGroup());
  return groups;
}

}  // namespace penstock::worker
