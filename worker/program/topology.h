// Who is where, as a worker sees it: the ranks of every stage of every replica, and the groups that follow
// from them. The planner says it to every worker that
// registers (from_proto.h). Whoever needs a group of ranks asks for it here.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/program/group_place.h"

namespace penstock::worker {

using RankGroup = std::vector<uint32_t>;

// The stage group: context rank by context rank, of each its tensor ranks.
struct StageTopology {
  RankGroup ranks;
  // Of both stacks.
  uint32_t layers = 0;

  bool operator==(const StageTopology&) const = default;
};

struct ReplicaTopology {
  // In stage order.
  std::vector<StageTopology> stages;
  // Tensor ranks of a stage group.
  uint32_t tensor = 1;
  // Ranks of a stage group, one behind the other, that divide the experts.
  uint32_t expert = 1;

  bool operator==(const ReplicaTopology&) const = default;
};

// Replicas may differ in all of that where parameters are in shares. Elsewhere they are alike.
struct Topology {
  std::vector<ReplicaTopology> replicas;

  bool operator==(const Topology&) const = default;

  uint32_t ranks() const;
  // Ascending; none for a rank that there is not.
  std::vector<uint32_t> StagesOf(uint32_t rank) const;
  // Of the replica that it is in.
  std::vector<uint32_t> LayersPerStageOf(uint32_t rank) const;
  // Where in its stage group `rank` is. All stages on a rank have the same group.
  GroupPlace PlaceOf(uint32_t rank) const;
  // Ascending: all ranks; those of the replica that `rank` is in, who share the norm of the gradients; of
  // these, those of its place in all stage groups, who exchange activations and have the same part of what
  // stages share.
  RankGroup WorldGroup() const;
  RankGroup PipelineGroup(uint32_t rank) const;
  RankGroup LineGroup(uint32_t rank) const;
  // The stage group of `rank`, in its order, and of that: those of its context rank, who divide the layers;
  // those of its tensor rank, who divide the tokens. Itself alone for a rank that there is not.
  RankGroup StageGroupOf(uint32_t rank) const;
  RankGroup TensorGroup(uint32_t rank) const;
  RankGroup ContextGroup(uint32_t rank) const;
  // Those that divide the experts with it.
  RankGroup ExpertGroup(uint32_t rank) const;
  // For every stage on `rank`, without repetition: the ranks of its tensor rank in all replicas, replica by
  // replica and in each context rank by context rank, who sum its gradients.
  std::vector<RankGroup> GradientGroups(uint32_t rank) const;
  // Of these, those that have its experts of the stage, in the same order: all, where no ranks divide them.
  RankGroup ExpertHolders(uint32_t rank, uint32_t stage) const;
  // All groups that a rank is in, but what passes exchange (TensorGroup, ContextGroup, ExpertGroup).
  std::vector<RankGroup> GroupsOf(uint32_t rank) const;
  // Pairs of ranks, ascending, that exchange activations, one of them `rank`, without repetition: those of
  // equal places in neighbouring stages. In an order in which all ranks can connect pair after pair: every
  // two ranks have the pairs that they share in one order, and ranks far from each other do not wait for each
  // other.
  std::vector<RankGroup> LinksOf(uint32_t rank) const;

 private:
  // Null for a rank that there is not.
  const ReplicaTopology* ReplicaOf(uint32_t rank) const;
  uint32_t TensorRanksOf(uint32_t rank) const;
  uint32_t ExpertRanksOf(uint32_t rank) const;
};

}  // namespace penstock::worker
