// What a micro-batch costs on each stage of a pipeline: time, memory, bytes at the boundaries.
//
//   CostModel costs(profile, job);
//   LayerCosts layers;
//   if (costs.Layers(sums, &layers)) { int64_t time = costs.ForwardNs(stage, layers); }
//
// Everything leaves the model as whole nanoseconds and bytes, rounded once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/core/cost/profile.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// Time of one layer of each kind for one micro-batch, nanoseconds.
struct LayerCosts {
  std::array<double, kLayerKinds> forward = {};
  std::array<std::array<double, kRecomputeLevels>, kLayerKinds> backward = {};
  // Of source tokens, and of target tokens.
  double source_embedding = 0;
  double target_embedding = 0;
};

// Memory of one micro-batch on one stage, bytes.
struct StageMemory {
  // Kept by one layer, by kind (encoder, decoder) and level.
  std::array<std::array<int64_t, kRecomputeLevels>, 2> stored_layer = {};
  // Exists while one layer runs backward.
  int64_t peak = 0;
  // Activation that is received, and that is sent. 0 at the ends of the pipeline.
  int64_t input = 0;
  int64_t output = 0;
  // Token buffers of LOAD: id and position of every computed token that the stage embeds; on the last stage
  // also place and label of every position that the loss counts.
  int64_t tokens = 0;
};

enum class Link : uint8_t { kInsideNode, kBetweenNodes };

class CostModel {
 public:
  CostModel(Profile profile, const Job& job);

  const Topology& topology() const { return topology_; }
  // The shape of every replica: its stages, the ranks of its pipeline, and a stage's position among them.
  int stages() const { return static_cast<int>(shape().stages.size()); }
  const Stage& stage(int index) const { return shape().stages[index]; }
  int ranks() const { return shape().ranks; }
  int rank_of(int stage) const { return shape().rank_of_stage[stage]; }
  const std::vector<int32_t>& rank_of_stage() const { return shape().rank_of_stage; }
  const Profile& profile() const { return profile_; }

  // False when the shape is outside of the profile: not on the grid, and no closed form.
  bool Layers(const TokenSums& sums, LayerCosts* costs) const;

  // Forward and backward pass of one layer of this kind, not rounded; infinite when the shape is outside of
  // the profile. The fast way where one recompute level is all that is asked for.
  double PassesNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const;
  double SourceEmbeddingNs(const TokenSums& sums) const {
    return profile_.embedding_forward(SourceSide(sums));
  }
  double TargetEmbeddingNs(const TokenSums& sums) const {
    return profile_.embedding_forward(TargetSide(sums));
  }

  int64_t ForwardNs(int stage, const LayerCosts& costs) const;
  int64_t BackwardNs(int stage, const LayerCosts& costs, const StageRecompute& recompute) const;

  // The part of BackwardNs that BACKWARD_WEIGHT takes when it is run apart; the same for every recompute. The
  // head's is never apart: it would have to keep the gradient of the logits, which is larger than all else.
  int64_t WeightNs(int stage, const LayerCosts& costs) const;

  StageMemory Memory(int stage, const TokenSums& sums) const;
  // Kept by all layers of the stage.
  int64_t StoredBytes(int stage, const StageMemory& memory, const StageRecompute& recompute) const;
  // Kept between BACKWARD_INPUT and BACKWARD_WEIGHT: input and output gradient of every linear layer. Counted
  // as all that a layer keeps without recompute, of which they are nearly everything (GPT: 32 of 34 bytes for
  // each token and element of the width).
  int64_t PutAsideBytes(int stage, const StageMemory& memory) const;
  // Weights, gradients and optimizer state, of one stage and of all stages of a rank.
  int64_t StaticBytes(int stage) const { return static_bytes_[stage]; }
  int64_t RankStaticBytes(int position) const;
  // Parameters of the stage in the model's number format.
  int64_t ParameterBytes(int stage) const { return parameter_bytes_[stage]; }
  // Activation that leaves the stage for the next; elements and bytes.
  int64_t BoundaryElements(int stage, const TokenSums& sums) const;
  int64_t BoundaryBytes(int stage, const TokenSums& sums) const;

  Link LinkBetween(int from_rank, int to_rank) const;
  int64_t LinkNs(int64_t bytes, Link link) const;
  int64_t TransferNs(int64_t bytes, int from_rank, int to_rank) const {
    return LinkNs(bytes, LinkBetween(from_rank, to_rank));
  }
  // Gradients of the stage over its n replicas, in a ring of their order: 2 (n-1) steps of bytes / n. With a
  // divided optimizer state only the first half, a reduce-scatter.
  int64_t ReduceNs(int stage) const;
  // The update of the stage; with a divided state that of a replica's share, and the all-gather after it.
  int64_t OptimizerNs(int stage) const;
  // What the ranks of a pipeline exchange in the optimizer step: the squared norm of the gradients, and the
  // gradients of parameters that several stages hold. Takes no time in the model.
  int64_t StepBytes() const;

  bool has_selective() const;

 private:
  const PipelineShape& shape() const { return topology_.shape(); }
  // One step of the ring over the replicas of the stage.
  int64_t RingStepNs(int stage) const;
  // A reduce-scatter of the stage's gradients, or an all-gather of its parameters.
  int64_t HalfOfAllReduceNs(int stage) const;
  // Of what a stage embeds; the same in both passes.
  double EmbeddingNs(const Stage& stage, const LayerCosts& costs) const;
  bool LayerOfKind(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const;
  void RaiseToBorder(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const;

  Profile profile_;
  Topology topology_;
  int64_t hidden_;
  int64_t bytes_per_element_;
  int64_t shared_table_bytes_;
  TokenTable token_table_;
  // The optimizer state, over replicas.
  bool divided_state_;
  std::vector<int64_t> parameter_bytes_;
  std::vector<int64_t> static_bytes_;
};

}  // namespace penstock::core
