// What a micro-batch costs on each stage of a pipeline of one shape: time, memory, bytes at the boundaries.
//
//   CostModel costs(profile, job);
//   LayerCosts layers;
//   if (costs.Layers(share, &layers)) { int64_t time = costs.ForwardNs(stage, layers); }
//
// Shares are those of a rank of the stage group: what its context rank has of the micro-batch
// (model/share.h). A group takes as long as the slowest of its ranks. Everything leaves the model as whole
// nanoseconds and bytes, rounded once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/core/cost/exchange_model.h"
#include "planner/core/cost/layer_costs.h"
#include "planner/core/cost/layer_model.h"
#include "planner/core/cost/memory_model.h"
#include "planner/core/cost/part_costs.h"
#include "planner/core/cost/pass_exchange.h"
#include "planner/core/cost/profile.h"
#include "planner/core/cost/reduce_time.h"
#include "planner/core/cost/reshard_time.h"
#include "planner/core/cost/slow_groups.h"
#include "planner/core/cost/slow_links.h"
#include "planner/core/cost/stage_memory.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/share.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/nodes.h"

namespace penstock::core {

class CostModel {
 public:
  CostModel(Profile profile, const Job& job);
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  const Topology& topology() const { return topology_; }
  const Nodes& nodes() const { return nodes_; }
  const LayerModel& layer_model() const { return layer_model_; }
  const ExchangeModel& exchange_model() const { return exchange_model_; }
  // The shape of every replica: its stages, the positions of its pipeline, and where each stage is.
  const GroupShape& group() const { return shape().group; }
  int stages() const { return static_cast<int>(shape().stages.size()); }
  const Stage& stage(int index) const { return shape().stages[index]; }
  int positions() const { return shape().positions; }
  int position_of(int stage) const { return shape().position_of_stage[stage]; }
  const std::vector<int32_t>& position_of_stage() const { return shape().position_of_stage; }
  const Profile& profile() const { return profile_; }
  // Times below are those of groups that are not slow.
  const SlowGroups& slow_groups() const { return slow_groups_; }

  // False when the shape is outside of the profile: not on the grid, and no closed form.
  bool Layers(const Share& share, LayerCosts* costs) const;
  // Of a rank that goes through the micro-batch in parts, of which it has these shares; empty: in one.
  // `whole_backward`: backward passes are of the whole, and join what was kept of the parts.
  bool Layers(const Share& share, absl::Span<const Share> parts, bool whole_backward,
              LayerCosts* costs) const;
  // Of a part, whose costs as a micro-batch of its own these are.
  PartCosts CostsOfPart(const LayerCosts& costs) const;
  // Of a rank that has all of a context rank's tokens, none of a divided row.
  bool Layers(const TokenSums& sums, LayerCosts* costs) const { return Layers(WholeShare(sums), costs); }
  // What each context rank has of a micro-batch when it is divided as evenly as can be: no placement is
  // better.
  TokenSums EvenShare(const TokenSums& whole) const;

  // See LayerModel, for a rank's share.
  double PassesNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const {
    const double compute = layer_model_.PassesNs(kind, level, sums);
    return group().tensor == 1 && !group().divides_experts() ? compute
                                                             : compute + ExchangeNs(kind, level, sums);
  }
  double SourceEmbeddingNs(const TokenSums& sums) const { return layer_model_.SourceEmbeddingNs(sums); }
  double TargetEmbeddingNs(const TokenSums& sums) const { return layer_model_.TargetEmbeddingNs(sums); }

  int64_t ForwardNs(int stage, const LayerCosts& costs) const;
  int64_t BackwardNs(int stage, const LayerCosts& costs, const StageRecompute& recompute) const;

  // The part of BackwardNs that BACKWARD_WEIGHT takes when it is run apart; the same for every recompute. The
  // head's is never apart: it would have to keep the gradient of the logits, which is larger than all else.
  // Nor is what is made beside exchanges of rows (BesideNs).
  int64_t WeightNs(int stage, const LayerCosts& costs) const;
  int64_t BesideNs(int stage, const LayerCosts& costs) const;

  // Inside a forward pass, and inside a whole backward pass or BACKWARD_INPUT. All 0 for a group of one rank.
  PassExchange ForwardExchange(int stage, const LayerCosts& costs) const;
  PassExchange BackwardExchange(int stage, const LayerCosts& costs, const StageRecompute& recompute) const;

  // Into how many parts a micro-batch may be cut; 1: passes go through it as it is.
  int most_parts() const { return most_parts_; }
  // Whether a backward pass may be whole behind a forward pass in parts, and what joining takes is known.
  bool has_whole_backward() const {
    return most_parts_ > 1 && group().tensor == 1 && profile_.cluster.copy_bytes_per_second > 0;
  }

  // Whether parts may also begin inside of rows: all of a sample decides what experts of a capacity take.
  bool may_cut_rows() const { return has_whole_backward() && !experts_have_capacity_; }

  // Of a token's rows and their gradients, to experts on other ranks and back, in both passes of one layer
  // that keeps everything: what products for weights do not hide. A line through the tokens, for estimates.
  double RowsTokenNs() const;

  // See MemoryModel.
  const MemoryModel& memory_model() const { return memory_model_; }
  StageMemory Memory(int stage, const Share& share) const { return memory_model_.OnStage(stage, share); }
  StageMemory Memory(int stage, const TokenSums& sums) const { return Memory(stage, WholeShare(sums)); }
  int64_t StoredBytes(int stage, const StageMemory& memory, const StageRecompute& recompute) const {
    return memory_model_.StoredBytes(stage, memory, recompute);
  }
  int64_t BackwardPeak(int stage, const StageMemory& memory, const StageRecompute& recompute) const {
    return memory_model_.BackwardPeak(stage, memory, recompute);
  }
  int64_t InputBackwardPeak(int stage, const StageMemory& memory) const {
    return memory_model_.InputBackwardPeak(stage, memory);
  }
  int64_t PutAsideBytes(int stage, const StageMemory& memory) const {
    return memory_model_.PutAsideBytes(stage, memory);
  }
  // Weights, gradients and optimizer state: of a rank of one stage; of a rank, all its stages and its share;
  // and of the ranks of a position, of all replicas, the most and the least.
  int64_t StaticBytes(int stage) const { return static_bytes_[stage]; }
  int64_t StaticBytesOfRank(int rank) const;
  int64_t RankStaticBytes(int position) const;
  int64_t LeastRankStaticBytes(int position) const;
  // Of that its share, with all that goes with it; and the shares of all ranks together.
  int64_t ShareBytes(int rank) const { return BytesOfShare(share_weights_.Of(rank)); }
  double AllShareBytes() const { return all_parameter_bytes_ * profile_.state_bytes_per_parameter_byte; }
  // Parameters that learn of a rank's part of the stage in the model's number format.
  int64_t ParameterBytes(int stage) const { return common_bytes_[stage] + expert_bytes_[stage]; }
  // Of all stages of a rank there.
  int64_t PositionParameterBytes(int position) const;
  int64_t PositionLayers(int position) const;
  // Activation that leaves the stage for the next from a tensor rank of the context rank with these tokens;
  // elements and bytes. Without a tensor rank: of the one with the most.
  int64_t BoundaryElements(int stage, const TokenSums& sums, int tensor) const {
    return memory_model_.BoundaryElements(stage, sums, tensor);
  }
  int64_t BoundaryElements(int stage, const TokenSums& sums) const {
    return BoundaryElements(stage, sums, group().tensor - 1);
  }
  int64_t BoundaryBytes(int stage, const TokenSums& sums) const {
    return BoundaryBytes(stage, sums, group().tensor - 1);
  }
  int64_t BoundaryBytes(int stage, const TokenSums& sums, int tensor) const {
    return BoundaryElements(stage, sums, tensor) * bytes_per_element_;
  }

  Link LinkBetween(int from_rank, int to_rank) const { return nodes_.Between(from_rank, to_rank); }
  // The slowest one from a stage's group to that of the next stage, over which equal places exchange.
  Link LinkAcross(const Topology& topology, int replica, int stage) const;
  int64_t LinkNs(int64_t bytes, Link link) const;
  // Over the link from the one to the other, which may be slow.
  int64_t TransferNs(int64_t bytes, int from_rank, int to_rank) const {
    return slow_links_.Slowed(LinkNs(bytes, LinkBetween(from_rank, to_rank)), from_rank, to_rank);
  }
  const SlowLinks& slow_links() const { return slow_links_; }
  // Of the slowest link between equal places of a stage's group and the next stage's, on the way of
  // activations and on that of gradients: at least 1.
  double SlownessAcross(const Topology& topology, int replica, int stage, bool gradients) const;
  // Gradients of a tensor rank's part of the stage over the n ranks that have it (replicas x context ranks;
  // experts that ranks divide apart, over those that have them), in a ring of their order: 2 (n-1) steps of
  // bytes / n. With a divided optimizer state only the first half,
  // a reduce-scatter. Where buckets have a size, bucket by bucket, and so long behind a pass that hides
  // nothing.
  int64_t ReduceNs(int stage, int tensor) const { return ReduceTimes(stage, tensor).WholeNs(); }
  // Whether some stage's gradients go in several buckets.
  bool has_gradient_buckets() const {
    return std::any_of(buckets_.begin(), buckets_.end(), [](int64_t buckets) { return buckets > 1; });
  }
  // What of it each bucket takes, and what passes may hide.
  ReduceTime ReduceTimes(int stage, int tensor) const;
  // The update of the stage; with a divided state that of a rank's share, and the all-gather after it.
  int64_t OptimizerNs(int stage, int tensor) const;
  // Of the slowest tensor rank; of a reduction, where a pass hides as much of it as can be hidden.
  int64_t LeastReduceNs(int stage) const;
  int64_t OptimizerNs(int stage) const;
  // The optimizer step of a rank: its fixed part, and the updates of all its stages, or of its share; where
  // shares differ, a slow rank's takes as many times as long as its passes.
  int64_t StepNs(int rank) const;
  // What of it is the all-gather of parameters after the updates: 0 where the state is not divided, or in
  // shares.
  int64_t GatherNs(int rank) const;

  // Parameters live in shares, one a rank: no stage reduces its gradients or updates anything.
  bool has_shares() const { return has_shares_; }
  const ShareWeights& share_weights() const { return share_weights_; }
  // How large the shares of a position's ranks are beside others', of all replicas.
  struct WeightRange {
    int64_t least = 1;
    int64_t most = 1;
  };
  WeightRange WeightsAt(int position) const {
    return share_weights_.alike() ? WeightRange() : weights_at_[position];
  }
  // Parameters from all shares to all stages, or gradients back: the most that a rank sends or receives, and
  // the time, of which passes hide some of the gradients'.
  int64_t ReshardBytes() const { return Reshard().bytes; }
  int64_t ReshardNs() const;
  // The kind of link that it is taken to go over, part by part: that between the first rank and the last one.
  Link ReshardLink() const { return nodes_.OfWorld(0, ranks_of_world() - 1); }
  ReshardTime ReshardTimes() const;
  // What a position does for the iteration as a whole, beside passes and reductions: its steps; with shares
  // also what comes before all passes and behind them.
  int64_t WholeIterationNs(int position) const;

  // What the ranks of a pipeline exchange in the optimizer step: the squared norm of the gradients, and the
  // gradients of parameters that several stages hold. Takes no time in the model.
  int64_t StepBytes() const;

  bool has_selective() const;

 private:
  const PipelineShape& shape() const { return topology_.shape(); }
  // Over tensor ranks and with experts on other ranks, of both passes of one layer, without latencies.
  double ExchangeNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const;
  // A reduce-scatter of gradients over ranks, in a ring of their order, or an all-gather of parameters.
  int64_t RingNs(int64_t bytes, const std::vector<int32_t>& ranks) const;
  // Of the part of a rank of this tensor rank: what it has in common with all others of it, and its experts
  // where ranks divide them (of those with the slowest ring). Of one bucket, and of all.
  int64_t HalfOfBucketNs(int stage, int tensor) const;
  int64_t HalfOfAllReduceNs(int stage, int tensor) const;
  // Into how many the gradients of the stage go; one where the job names no size.
  int64_t BucketsOf(const Job& job, int stage) const;
  // Ranks that have the same parameters, and the same experts.
  int copies() const { return topology_.replicas() * group().context; }
  int expert_copies() const { return topology_.replicas() * group().expert_copies(); }
  // Of what is kept for each parameter byte, by a rank that has it in common with so many.
  double StateBytes(int copies) const;
  // Of all parameters of the model, in the model's number format, those of a share with this weight.
  double ShareOfParameters(int64_t weight) const {
    return all_parameter_bytes_ * static_cast<double>(weight) /
           static_cast<double>(share_weights_.AllOf(ranks_of_world()));
  }
  // Of a share with this weight; and of a rank there that has it.
  int64_t BytesOfShare(int64_t weight) const;
  int64_t StaticBytesAt(int position, int64_t weight) const;
  // Of the slowest rank, where there are shares.
  int64_t LongestStepNs() const;
  // Of a rank's step, once.
  int64_t FixedStepNs() const;
  void ReadWeights();
  int ranks_of_world() const { return world_.ranks > 0 ? world_.ranks : topology_.ranks(); }
  WorldReshard Reshard() const;
  // Weights and gradients of the stage where the optimizer's state is in shares.
  int64_t StaticBytesBesideShares(double parameter_bytes) const;
  // Passes make products for weights while rows of experts travel.
  bool makes_beside() const { return group().divides_experts() && profile_.cluster.exchange_overlap > 0; }
  // Adds up what parts cost in layers, and what they exchange.
  bool AddParts(absl::Span<const Share> parts, LayerCosts* costs) const;
  // To the backward pass of a layer: what it kept is put into one piece.
  void AddJoining(const Share& share, LayerCosts* costs) const;
  // A rank's products for the weights of a decoder layer, which take so long.
  LayerProducts ProductsOf(double weight_ns) const;
  // All parameters of the stage on one of its ranks but experts that ranks divide, not rounded; `experts`: of
  // these, on all ranks.
  double OwnBytes(const Stage& stage, double experts) const;
  // What is reduced and updated of a stage, and what it holds as long as it lives.
  void AddStage(const Job& job, const Stage& stage);
  // The same where adapters alone learn: all else is there as weights.
  void AddAdaptedStage(const Job& job, const Stage& stage);
  // Of what a stage embeds; the same in both passes.
  double EmbeddingNs(const Stage& stage, const LayerCosts& costs) const;
  Profile profile_;
  Topology topology_;
  Nodes nodes_;
  World world_;
  SlowGroups slow_groups_;
  SlowLinks slow_links_;
  LayerModel layer_model_;
  ExchangeModel exchange_model_;
  MemoryModel memory_model_;
  // Of a layer's weights.
  double repeated_bytes_;
  int64_t bytes_per_element_;
  int64_t shared_table_bytes_;
  TokenTable token_table_;
  // Of a rank's experts in each layer; and which part they are of the products for a layer's weights.
  int64_t expert_products_;
  double expert_product_share_;
  int most_parts_ = 1;
  bool experts_have_capacity_;
  // The optimizer state, over replicas; or all, over all ranks.
  bool divided_state_;
  bool has_shares_;
  ShareWeights share_weights_;
  // By position, and by rank how many times as long an update takes; both empty where shares are alike.
  std::vector<WeightRange> weights_at_;
  std::vector<double> slowness_;
  // Of one replica, on all its ranks: some more than once.
  double all_parameter_bytes_ = 0;
  // Of what learns of a rank's part of the stage: of experts that ranks divide, and of all else.
  std::vector<int64_t> expert_bytes_;
  std::vector<int64_t> common_bytes_;
  // In which these are summed.
  std::vector<int64_t> buckets_;
  std::vector<int64_t> static_bytes_;
};

}  // namespace penstock::core
