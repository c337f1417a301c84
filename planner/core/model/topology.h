// Who is where: which rank runs which stages of which replica, and which ranks work together.
//
//   const int rank = job.topology.RankOf(replica, stage);
//   const RankPlace place = job.topology.PlaceOf(rank);
//
// It is made once, from the job (planner/core/contract/job_from_proto.h). Whoever needs the number of a rank,
// or the ranks of a group, asks it; nobody calculates with them. Ranks of the world are called rank;
// `position` is a rank's place among the ranks of its pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/model/stage.h"

namespace penstock::core {

// What one replica looks like from inside.
struct PipelineShape {
  std::vector<Stage> stages;
  // Ranks of the pipeline, and for each stage the position of its rank among them.
  int32_t ranks = 0;
  std::vector<int32_t> rank_of_stage;
};

struct RankPlace {
  int replica = 0;
  int position = 0;
};

class Topology {
 public:
  Topology() = default;
  // Replicas that look alike, the ranks of one after those of the other.
  Topology(const PipelineShape& shape, int replicas);

  int replicas() const { return static_cast<int>(replicas_.size()); }
  // Of all replicas.
  int ranks() const { return static_cast<int>(places_.size()); }
  const PipelineShape& pipeline(int replica) const { return replicas_[replica].shape; }
  // What all replicas look like: costs and searches know one shape.
  const PipelineShape& shape() const { return replicas_.front().shape; }

  int RankAt(int replica, int position) const { return replicas_[replica].ranks[position]; }
  int RankOf(int replica, int stage) const { return RankAt(replica, pipeline(replica).rank_of_stage[stage]); }
  RankPlace PlaceOf(int rank) const { return places_[rank]; }
  // Ascending.
  std::vector<int32_t> StagesOf(int rank) const;

  // The ranks of a replica by position: who exchanges activations and shares the norm of the gradients.
  const std::vector<int32_t>& PipelineGroup(int replica) const { return replicas_[replica].ranks; }
  // For each replica the rank of the stage: who sums its gradients.
  std::vector<int32_t> GradientGroup(int stage) const;

  // Other stages, or another number of replicas.
  Topology WithShape(const PipelineShape& shape) const { return {shape, replicas()}; }
  Topology WithReplicas(int replicas) const { return {shape(), replicas}; }

 private:
  struct Replica {
    PipelineShape shape;
    // By position.
    std::vector<int32_t> ranks;
  };

  std::vector<Replica> replicas_;
  // By rank.
  std::vector<RankPlace> places_;
};

}  // namespace penstock::core
