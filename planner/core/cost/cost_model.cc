#include "planner/core/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "planner/core/cost/ceil_divide.h"
#include "planner/core/cost/half_counts.h"
#include "planner/core/cost/level_counts.h"
#include "planner/core/cost/loaded_experts.h"
#include "planner/core/cost/repeated_heads.h"
#include "planner/core/cost/rounding.h"
#include "planner/core/cost/world_reshard.h"

namespace penstock::core {
namespace {

constexpr int64_t kNormBytes = 8;
// Of a round of a RESHARD, at least: a message of this size takes far longer than starting it.
constexpr int64_t kRoundBytes = int64_t{4} << 20;

// Of a GPT, the only kind of model whose ranks divide experts.
void AddPart(const ExchangeCosts& part, ExchangeCosts* all) {
  const auto add = [](const ExchangeCosts::Half& half, ExchangeCosts::Half* sum) {
    sum->bytes += half.bytes;
    sum->ns += half.ns;
  };
  add(part.target, &all->target);
  add(part.rows, &all->rows);
  add(part.row_gradients, &all->row_gradients);
  all->sent_bytes += part.sent_bytes;
  all->received_bytes += part.received_bytes;
  all->context_ns += part.context_ns;
  all->exposed_forward_ns += part.exposed_forward_ns;
  for (size_t level = 0; level < part.exposed_backward_ns.size(); ++level)
    all->exposed_backward_ns[level] += part.exposed_backward_ns[level];
}

}  // namespace

CostModel::CostModel(Profile profile, const Job& job)
    : profile_(LoadedProfile(std::move(profile), job)),
      topology_(job.topology),
      nodes_(topology_, profile_.cluster.gpus_per_node, job.world.first_rank),
      world_(job.world),
      slow_groups_(profile_.slow_ranks, topology_),
      slow_links_(profile_.slow_links),
      layer_model_(profile_, shape().group),
      exchange_model_(profile_, job, nodes_),
      memory_model_(profile_, job, topology_, exchange_model_),
      repeated_bytes_(RepeatedHeadsOf(job, group().tensor).parameter_bytes),
      bytes_per_element_(job.bytes_per_element),
      shared_table_bytes_(job.shared_table_bytes),
      token_table_(job.token_table),
      expert_products_(job.expert_products / group().expert),
      expert_product_share_(job.expert_product_share * profile_.fullest_experts /
                            LoadFactor(job.expert_product_share, profile_.fullest_experts)),
      experts_have_capacity_(job.experts_have_capacity),
      divided_state_(job.shard_optimizer_state),
      has_shares_(job.parameter_shares),
      share_weights_(job.share_weights) {
  if (makes_beside()) most_parts_ = job.most_parts;
  for (const Stage& stage : shape().stages) {
    if (job.adapted) {
      AddAdaptedStage(job, stage);
    } else {
      AddStage(job, stage);
    }
  }
  for (int stage = 0; stage < stages(); ++stage) buckets_.push_back(BucketsOf(job, stage));
  if (!share_weights_.alike()) ReadWeights();
}

void CostModel::ReadWeights() {
  const int ranks = topology_.ranks();
  weights_at_.assign(positions(), {.least = std::numeric_limits<int64_t>::max(), .most = 0});
  for (int rank = 0; rank < ranks; ++rank) {
    WeightRange& range = weights_at_[topology_.PlaceOf(rank).position];
    range.least = std::min(range.least, share_weights_.Of(rank));
    range.most = std::max(range.most, share_weights_.Of(rank));
  }
  slowness_.assign(ranks, 1);
  for (const SlowRank& slow : profile_.slow_ranks) slowness_[slow.rank] = slow.factor;
}

double CostModel::OwnBytes(const Stage& stage, double experts) const {
  double bytes = 0;
  for (const LayerKind kind : kKindsOfStacks)
    bytes += stage.count(kind) * profile_.layers[kind].parameter_bytes;
  bytes += stage.embeddings() * profile_.embedding_parameter_bytes;
  if (stage.last) bytes += profile_.layers[kHead].parameter_bytes;
  const int uses = UsesOf(token_table_, stage);
  if (uses > 1) bytes = std::max(0.0, bytes - (uses - 1) * static_cast<double>(token_table_.parameter_bytes));
  return std::max(0.0, bytes - experts) / group().tensor + stage.decoder_layers * repeated_bytes_;
}

void CostModel::AddStage(const Job& job, const Stage& stage) {
  const double experts =
      group().divides_experts() ? stage.count(kDecoder) * static_cast<double>(job.expert_parameter_bytes) : 0;
  const double common = OwnBytes(stage, experts);
  common_bytes_.push_back(RoundToInteger(common));
  expert_bytes_.push_back(RoundToInteger(experts / group().expert));
  static_bytes_.push_back(has_shares_
                              ? StaticBytesBesideShares(common + experts / group().expert)
                              : RoundToInteger(common * StateBytes(copies()) +
                                               experts / group().expert * StateBytes(expert_copies())));
  all_parameter_bytes_ += common * group().tensor + experts;
}

void CostModel::AddAdaptedStage(const Job& job, const Stage& stage) {
  const int64_t adapters = stage.count(kEncoder) * job.adapter_layer_bytes[kEncoder] +
                           stage.count(kDecoder) * job.adapter_layer_bytes[kDecoder];
  common_bytes_.push_back(adapters);
  expert_bytes_.push_back(0);
  static_bytes_.push_back(
      RoundToInteger(OwnBytes(stage, /*experts=*/0) + static_cast<double>(adapters) * StateBytes(copies())));
}

int64_t CostModel::StaticBytesBesideShares(double parameter_bytes) const {
  return RoundToInteger(parameter_bytes * (profile_.state_bytes_per_parameter_byte -
                                           profile_.sharded_state_bytes_per_parameter_byte));
}

double CostModel::StateBytes(int copies) const {
  const double state = profile_.state_bytes_per_parameter_byte;
  if (!divided_state_) return state;
  const double sharded = profile_.sharded_state_bytes_per_parameter_byte;
  return state - (sharded - sharded / copies);
}

bool CostModel::has_selective() const {
  return std::all_of(kKindsOfStacks.begin(), kKindsOfStacks.end(), [&](LayerKind kind) {
    return !profile_.layers[kind].present || profile_.layers[kind].has_selective;
  });
}

bool CostModel::Layers(const Share& share, LayerCosts* costs) const {
  costs->whole_backward.reset();
  if (!layer_model_.Layers(share.sums, costs)) return false;
  if (!exchange_model_.any()) return true;
  costs->exchange = exchange_model_.Costs(share, layer_model_);
  if (makes_beside()) {
    costs->exchange.beside = PutBeside(ProductsOf(costs->weight[kDecoder]), costs->exchange.row_gradients.ns,
                                       profile_.cluster.exchange_overlap);
  }
  return true;
}

PartCosts CostModel::CostsOfPart(const LayerCosts& costs) const {
  const auto floor = [](double ns) { return static_cast<int64_t>(std::floor(ns)); };
  const LayerProducts products = ProductsOf(costs.weight[kDecoder]);
  PartCosts part;
  part.experts_ns = floor(products.experts_ns);
  part.rows_ns = costs.exchange.rows.ns;
  part.row_gradients_ns = costs.exchange.row_gradients.ns;
  part.context_forward_ns = costs.exchange.exposed_forward_ns;
  part.context_backward_ns = costs.exchange.exposed_backward_ns;
  const bool divided = group().feeds_own_tokens();
  const int64_t half_ns = costs.exchange.target.ns;
  for (const LayerKind kind : {kDecoder, kDense}) {
    PartCosts::Layer& layer = kind == kDense ? part.dense : part.with_experts;
    layer.forward_ns = floor(costs.forward[kind]);
    layer.weights_ns = floor(costs.weight[kind]);
    layer.tensor_forward_ns = ForwardHalves(kind, /*crosses=*/false, divided).target * half_ns;
    layer.tensor_backward_ns = BackwardHalves(kind, /*crosses=*/false, divided, kKeepAll).target * half_ns;
    for (int level = 0; level < kRecomputeLevels; ++level)
      layer.backward_ns[level] = floor(costs.backward[kind][level]);
  }
  return part;
}

void CostModel::AddJoining(const Share& share, LayerCosts* costs) const {
  const double speed = profile_.cluster.copy_bytes_per_second;
  if (speed <= 0) return;
  const ShareMemory memory = memory_model_.OfShare(share);
  for (const LayerKind kind : {kDecoder, kDense}) {
    for (const RecomputeLevel level : {kKeepAll, kKeepSelective, kKeepInput}) {
      const int64_t bytes = memory_model_.KeptBytes(kind, level, memory);
      costs->backward[kind][level] += static_cast<double>(bytes) / speed * 1e9;
    }
  }
}

bool CostModel::Layers(const Share& share, absl::Span<const Share> parts, bool whole_backward,
                       LayerCosts* costs) const {
  if (parts.empty()) return Layers(share, costs);
  costs->whole_backward.reset();
  if (!whole_backward) return layer_model_.Layers(share.sums, costs) && AddParts(parts, costs);
  LayerCosts whole;
  if (!Layers(share, &whole)) return false;
  *costs = whole;
  if (!AddParts(parts, costs)) return false;
  costs->whole_backward = std::move(whole.exchange);
  costs->backward = whole.backward;
  costs->weight = whole.weight;
  AddJoining(share, costs);
  return true;
}

bool CostModel::AddParts(absl::Span<const Share> parts, LayerCosts* costs) const {
  for (const LayerKind kind : {kDecoder, kDense}) {
    costs->forward[kind] = 0;
    costs->backward[kind] = {};
    costs->weight[kind] = 0;
  }
  costs->exchange = {};
  costs->exchange.overlap = profile_.cluster.exchange_overlap;
  for (const Share& part : parts) {
    LayerCosts of_part;
    if (!layer_model_.Layers(part.sums, &of_part)) return false;
    of_part.exchange = exchange_model_.Costs(part, layer_model_);
    for (const LayerKind kind : {kDecoder, kDense}) {
      costs->forward[kind] += of_part.forward[kind];
      for (int level = 0; level < kRecomputeLevels; ++level)
        costs->backward[kind][level] += of_part.backward[kind][level];
      costs->weight[kind] += of_part.weight[kind];
    }
    AddPart(of_part.exchange, &costs->exchange);
    costs->exchange.parts.push_back(CostsOfPart(of_part));
  }
  return true;
}

int64_t CostModel::BesideNs(int stage, const LayerCosts& costs) const {
  const int64_t layers = this->stage(stage).count(kDecoder);
  const ExchangeCosts& exchange = costs.backward_exchange();
  int64_t of_parts = 0;
  for (const PartCosts& part : exchange.parts) of_parts += part.experts_ns;
  return exchange.beside.TakenNs(layers) + layers * of_parts;
}

LayerProducts CostModel::ProductsOf(double weight_ns) const {
  return {.ns = weight_ns, .experts_ns = weight_ns * expert_product_share_, .of_experts = expert_products_};
}

double CostModel::RowsTokenNs() const {
  const double exchanged = exchange_model_.RowsTokenNs();
  if (!makes_beside()) return exchanged;
  // Backward it is half of all.
  return exchanged -
         profile_.cluster.exchange_overlap * std::min(exchanged / 2, layer_model_.WeightTokenNs());
}

TokenSums CostModel::EvenShare(const TokenSums& whole) const {
  const int contexts = group().context;
  if (contexts == 1) return whole;
  TokenSums share;
  // Whoever has the mean of the work has this many of its rows at least, be they divided or not.
  share.rows = whole.rows > 0 ? std::max(1, whole.rows / contexts) : 0;
  share.source = whole.source / contexts;
  share.target = whole.target / contexts;
  share.source_square = whole.source_square / contexts;
  share.target_square = whole.target_square / contexts;
  share.cross = whole.cross / contexts;
  share.loss = whole.loss / contexts;
  return share;
}

double CostModel::EmbeddingNs(const Stage& stage, const LayerCosts& costs) const {
  return (stage.embeds_source ? costs.source_embedding : 0) +
         (stage.embeds_target ? costs.target_embedding : 0);
}

int64_t CostModel::ForwardNs(int stage, const LayerCosts& costs) const {
  const Stage& layers = this->stage(stage);
  double time = 0;
  for (const LayerKind kind : kKindsOfStacks) time += layers.count(kind) * costs.forward[kind];
  time += EmbeddingNs(layers, costs);
  if (layers.last) time += costs.forward[kHead];
  if (!exchange_model_.any()) return RoundToInteger(time);
  return RoundToInteger(time) + ForwardExchange(stage, costs).ns();
}

int64_t CostModel::BackwardNs(int stage, const LayerCosts& costs, const StageRecompute& recompute) const {
  const Stage& layers = this->stage(stage);
  const LevelCounts levels = CountLevels(layers, recompute);
  double time = 0;
  for (const LayerKind kind : kKindsOfStacks) {
    if (!layers.has(kind)) continue;
    for (int level = 0; level < kRecomputeLevels; ++level) {
      time += levels.counts[kind][level] * costs.backward[kind][level];
    }
  }
  time += EmbeddingNs(layers, costs);
  if (layers.last) time += costs.backward[kHead][kKeepAll];
  if (!exchange_model_.any()) return RoundToInteger(time);
  return RoundToInteger(time) + BackwardExchange(stage, costs, recompute).ns();
}

double CostModel::ExchangeNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const {
  const double token_ns = group().tensor > 1 ? exchange_model_.HalfTokenNs() : 0;
  if (kind == kHead) return static_cast<double>(kHeadHalves) * token_ns * sums.target;
  const bool crosses = shape().stages.front().crosses;
  const HalfCounts forward = ForwardHalves(kind, crosses, group().feeds_own_tokens());
  const HalfCounts backward = BackwardHalves(kind, crosses, group().feeds_own_tokens(), level);
  return token_ns * (static_cast<double>(forward.source + backward.source) * sums.source +
                     static_cast<double>(forward.target + backward.target) * sums.target) +
         (kind == kDecoder ? RowsTokenNs() * sums.target : 0);
}

PassExchange CostModel::ForwardExchange(int stage, const LayerCosts& costs) const {
  if (!exchange_model_.any()) return {};
  return core::ForwardExchange(this->stage(stage), group(), costs.exchange);
}

PassExchange CostModel::BackwardExchange(int stage, const LayerCosts& costs,
                                         const StageRecompute& recompute) const {
  if (!exchange_model_.any()) return {};
  return core::BackwardExchange(this->stage(stage), recompute, group(), costs.backward_exchange());
}

int64_t CostModel::WeightNs(int stage, const LayerCosts& costs) const {
  const Stage& layers = this->stage(stage);
  double time = 0;
  for (const LayerKind kind : kKindsOfStacks) time += layers.count(kind) * costs.weight[kind];
  if (!exchange_model_.any()) return RoundToInteger(time);
  return RoundToInteger(time) - BesideNs(stage, costs);
}

int64_t CostModel::BytesOfShare(int64_t weight) const {
  return has_shares_ ? RoundToInteger(ShareOfParameters(weight) * profile_.state_bytes_per_parameter_byte)
                     : 0;
}

int64_t CostModel::StaticBytesAt(int position, int64_t weight) const {
  int64_t bytes = 0;
  for (int stage = 0; stage < stages(); ++stage) {
    if (position_of(stage) == position) bytes += static_bytes_[stage];
  }
  return bytes + BytesOfShare(weight);
}

int64_t CostModel::StaticBytesOfRank(int rank) const {
  return StaticBytesAt(topology_.PlaceOf(rank).position, share_weights_.Of(rank));
}

int64_t CostModel::RankStaticBytes(int position) const {
  return StaticBytesAt(position, WeightsAt(position).most);
}

int64_t CostModel::LeastRankStaticBytes(int position) const {
  return StaticBytesAt(position, WeightsAt(position).least);
}

Link CostModel::LinkAcross(const Topology& topology, int replica, int stage) const {
  for (int place = 0; place < group().ranks(); ++place) {
    const int from = topology.RankOf(replica, stage, place);
    if (LinkBetween(from, topology.RankOf(replica, stage + 1, place)) == Link::kBetweenNodes)
      return Link::kBetweenNodes;
  }
  return Link::kInsideNode;
}

double CostModel::SlownessAcross(const Topology& topology, int replica, int stage, bool gradients) const {
  double slowness = 1;
  for (int place = 0; slow_links_.any() && place < group().ranks(); ++place) {
    const int lower = topology.RankOf(replica, stage, place);
    const int upper = topology.RankOf(replica, stage + 1, place);
    slowness = std::max(slowness,
                        gradients ? slow_links_.FactorOf(upper, lower) : slow_links_.FactorOf(lower, upper));
  }
  return slowness;
}

int64_t CostModel::LinkNs(int64_t bytes, Link link) const {
  const Cluster& cluster = profile_.cluster;
  const bool inside = link == Link::kInsideNode;
  const double speed = inside ? cluster.intra_node_bytes_per_second : cluster.inter_node_bytes_per_second;
  const int64_t latency = inside ? cluster.intra_node_latency_ns : cluster.inter_node_latency_ns;
  return latency + RoundToInteger(static_cast<double>(bytes) / speed * 1e9);
}

int64_t CostModel::RingNs(int64_t bytes, const std::vector<int32_t>& ranks) const {
  const auto steps = static_cast<int64_t>(ranks.size()) - 1;
  if (steps == 0) return 0;
  const int64_t share = CeilDivide(bytes, steps + 1);
  int64_t step = TransferNs(share, ranks.back(), ranks.front());
  // The slowest link of the ring sets the pace of every step.
  for (size_t i = 1; i < ranks.size(); ++i) step = std::max(step, TransferNs(share, ranks[i - 1], ranks[i]));
  return RoundToInteger(static_cast<double>(steps) * static_cast<double>(step));
}

int64_t CostModel::StepBytes() const {
  if (has_shares_) return kNormBytes;
  int encoders = 0;
  int decoders = 0;
  int with_token_table = 0;
  for (const Stage& stage : shape().stages) {
    with_token_table += UsesOf(token_table_, stage) > 0 ? 1 : 0;
    encoders += stage.encoder_layers > 0 ? 1 : 0;
    decoders += stage.decoder_layers > 0 ? 1 : 0;
  }
  const int shared = (encoders > 1 ? 1 : 0) + (decoders > 1 ? 1 : 0);
  return kNormBytes + shared * shared_table_bytes_ + (with_token_table > 1 ? token_table_.gradient_bytes : 0);
}

int64_t CostModel::OptimizerNs(int stage, int tensor) const {
  const int64_t common = CeilDivide(common_bytes_[stage], divided_state_ ? copies() : 1);
  const int64_t experts = CeilDivide(expert_bytes_[stage], divided_state_ ? expert_copies() : 1);
  const int64_t update =
      RoundToInteger(static_cast<double>(common + experts) * profile_.optimizer_ns_per_parameter_byte);
  return divided_state_ ? update + HalfOfAllReduceNs(stage, tensor) : update;
}

int64_t CostModel::OptimizerNs(int stage) const {
  int64_t longest = 0;
  for (int tensor = 0; tensor < group().tensor; ++tensor)
    longest = std::max(longest, OptimizerNs(stage, tensor));
  return longest;
}

WorldReshard CostModel::Reshard() const {
  if (world_.reshard.bytes > 0) return world_.reshard;
  const CostModel* const alone = this;
  return ReshardOfWorld({&alone, 1});
}

int64_t CostModel::PositionParameterBytes(int position) const {
  int64_t bytes = 0;
  for (int stage = 0; stage < stages(); ++stage)
    if (position_of(stage) == position) bytes += ParameterBytes(stage);
  return bytes;
}

int64_t CostModel::PositionLayers(int position) const {
  int64_t layers = 0;
  for (int stage = 0; stage < stages(); ++stage)
    if (position_of(stage) == position) layers += this->stage(stage).layers();
  return layers;
}

ReshardTime CostModel::ReshardTimes() const {
  const WorldReshard reshard = Reshard();
  return {.whole_ns = ReshardNs(),
          .rounds = std::clamp<int64_t>(reshard.bytes / kRoundBytes, 1, reshard.fewest_layers),
          .overlap = profile_.cluster.exchange_overlap};
}

int64_t CostModel::ReshardNs() const {
  const int64_t others = ranks_of_world() - 1;
  if (others == 0) return 0;
  return others * LinkNs(CeilDivide(ReshardBytes(), others), ReshardLink());
}

int64_t CostModel::WholeIterationNs(int position) const {
  int64_t ns = 0;
  if (has_shares_) {
    ns = 2 * ReshardTimes().LeastLeftNs() + LongestStepNs();
  }
  for (int stage = 0; stage < stages() && !has_shares_; ++stage) {
    if (position_of(stage) == position) ns += OptimizerNs(stage);
  }
  return has_shares_ ? ns : ns + FixedStepNs();
}

int64_t CostModel::StepNs(int rank) const {
  if (has_shares_) {
    const int64_t ns = FixedStepNs() + RoundToInteger(ShareOfParameters(share_weights_.Of(rank)) *
                                                      profile_.optimizer_ns_per_parameter_byte);
    if (share_weights_.alike() || slowness_[rank] <= 1) return ns;
    return RoundToInteger(static_cast<double>(ns) * slowness_[rank]);
  }
  const int tensor = topology().PlaceOf(rank).tensor;
  int64_t sum = FixedStepNs();
  for (const int stage : topology().StagesOf(rank)) sum += OptimizerNs(stage, tensor);
  return sum;
}

int64_t CostModel::FixedStepNs() const { return RoundToInteger(profile_.optimizer_fixed_ns); }

int64_t CostModel::GatherNs(int rank) const {
  if (has_shares_ || !divided_state_) return 0;
  const int tensor = topology().PlaceOf(rank).tensor;
  int64_t sum = 0;
  for (const int stage : topology().StagesOf(rank)) sum += HalfOfAllReduceNs(stage, tensor);
  return sum;
}

// All ranks begin their steps together.
int64_t CostModel::LongestStepNs() const {
  if (share_weights_.alike()) return StepNs(0);
  int64_t longest = 0;
  for (int rank = 0; rank < topology_.ranks(); ++rank) longest = std::max(longest, StepNs(rank));
  return longest;
}

}  // namespace penstock::core
