// Who is where: which ranks hold which stages of which replica, and which ranks work together.
//
//   const int rank = job.topology.RankOf(replica, stage, place);
//   const RankPlace place = job.topology.PlaceOf(rank);
//
// A *position* of a pipeline is held by a *stage group* of context x tensor ranks (Shoeybi et al. 2019,
// "Megatron-LM", for tensor ranks). Costs, searches and schedules work with positions; ranks come in where
// programs are made for each of them. A *place* is a rank's number in its stage group: context rank by
// context rank, of each its tensor ranks.
//
// It is made once, from the job (planner/core/contract/job_from_proto.h). Whoever needs the number of a rank,
// or the ranks of a group, asks it; nobody calculates with them. Ranks of the world are called rank.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/topology/stage.h"

namespace penstock::core {

// How the ranks of a stage group divide their work: tokens over context ranks, parameters over tensor ranks,
// experts over ranks that follow each other, all tensor ranks of a context rank among them; 1: as any other
// parameters.
struct GroupShape {
  int32_t context = 1;
  int32_t tensor = 1;
  int32_t expert = 1;
  // A part of each layer beside its experts, for all tokens, which tensor ranks divide.
  bool shared_expert = false;

  int32_t ranks() const { return context * tensor; }
  bool divides_experts() const { return expert > 1; }
  // Feed-forward parts see the rank's own tokens alone: tensor ranks gather and sum nothing for them.
  bool feeds_own_tokens() const { return divides_experts() && !shared_expert; }
  // Context ranks that divide the experts together, and ranks that have the same ones.
  int32_t expert_contexts() const { return expert / tensor; }
  int32_t expert_copies() const { return ranks() / expert; }
};

// What one replica looks like from inside.
struct PipelineShape {
  std::vector<Stage> stages;
  // Of the pipeline, and for each stage the one that holds it.
  int32_t positions = 0;
  std::vector<int32_t> position_of_stage;
  GroupShape group;
};

struct RankPlace {
  int replica = 0;
  int position = 0;
  int context = 0;
  int tensor = 0;
};

class Topology {
 public:
  Topology() = default;
  // Replicas that look alike, the ranks of one after those of the other; in each position by position, of
  // each its places.
  Topology(const PipelineShape& shape, int replicas);

  int replicas() const { return static_cast<int>(replicas_.size()); }
  // Of all replicas.
  int ranks() const { return static_cast<int>(places_.size()); }
  const PipelineShape& pipeline(int replica) const { return replicas_[replica].shape; }
  // What all replicas look like: costs and searches know one shape.
  const PipelineShape& shape() const { return replicas_.front().shape; }

  // The ranks of a stage group by place.
  const std::vector<int32_t>& GroupAt(int replica, int position) const {
    return replicas_[replica].groups[position];
  }
  int RankAt(int replica, int position, int place = 0) const { return GroupAt(replica, position)[place]; }
  int RankOf(int replica, int stage, int place = 0) const {
    return RankAt(replica, pipeline(replica).position_of_stage[stage], place);
  }
  RankPlace PlaceOf(int rank) const { return places_[rank]; }
  // Ascending.
  std::vector<int32_t> StagesOf(int rank) const;

  // The ranks of a replica, ascending: who steps together.
  std::vector<int32_t> PipelineGroup(int replica) const;
  // For each replica, and in it for each context rank, the tensor rank of the stage: who sums its gradients.
  std::vector<int32_t> GradientGroup(int stage, int tensor) const;
  // Likewise those that have the same experts of the stage, the `expert`-th of those that divide them.
  std::vector<int32_t> ExpertGradientGroup(int stage, int expert) const;

  // Other stages, or another number of replicas.
  Topology WithShape(const PipelineShape& shape) const { return {shape, replicas()}; }
  Topology WithReplicas(int replicas) const { return {shape(), replicas}; }

 private:
  // Of each replica the ranks of the stage at every `step`-th place.
  std::vector<int32_t> EveryPlace(int stage, int first, int step) const;

  struct Replica {
    PipelineShape shape;
    // By position.
    std::vector<std::vector<int32_t>> groups;
  };

  std::vector<Replica> replicas_;
  // By rank.
  std::vector<RankPlace> places_;
};

}  // namespace penstock::core
