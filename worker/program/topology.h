// Who is where, as a worker sees it: the ranks of every stage of every replica, and the groups that follow
// from them. The planner says it to every worker that
// registers (from_proto.h). Whoever needs a group of ranks asks for it here.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::worker {

using RankGroup = std::vector<uint32_t>;

struct StageTopology {
  RankGroup ranks;
};

struct ReplicaTopology {
  // In stage order.
  std::vector<StageTopology> stages;
};

struct Topology {
  std::vector<ReplicaTopology> replicas;

  uint32_t ranks() const;
  // Ascending; none for a rank that there is not.
  std::vector<uint32_t> StagesOf(uint32_t rank) const;
  // Ascending: all ranks; those of the replica that `rank` is in, who exchange activations and share the norm
  // of the gradients.
  RankGroup WorldGroup() const;
  RankGroup PipelineGroup(uint32_t rank) const;
  // For every stage on `rank`, without repetition: its ranks in all replicas, who sum its gradients.
  std::vector<RankGroup> GradientGroups(uint32_t rank) const;
  // All groups that a rank is in.
  std::vector<RankGroup> GroupsOf(uint32_t rank) const;
  // Pairs of ranks, ascending, that exchange activations, one of them `rank`, without repetition: those of
  // neighbouring stages. In an order in which all ranks can connect pair after pair: every two ranks have the
  // pairs that they share in one order, and ranks far from each other do not wait for each other.
  std::vector<RankGroup> LinksOf(uint32_t rank) const;
};

}  // namespace penstock::worker
