#include "planner/core/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "planner/core/cost/grid_table.h"
#include "planner/core/cost/rounding.h"

namespace penstock::core {
namespace {

// Two integers of 64 bits for each token embedded (id, position) and for each loss position (place, label).
constexpr int64_t kLoadedTokenBytes = 16;
constexpr int64_t kNormBytes = 8;

// Layers of each kind at each level: the first `full`, the next `selective`, the rest; encoder layers come
// first.
struct LevelCounts {
  int counts[2][kRecomputeLevels] = {};
};

LevelCounts CountLevels(const Stage& stage, const StageRecompute& recompute) {
  LevelCounts result;
  const int sizes[2] = {stage.encoder_layers, stage.decoder_layers};
  int full = recompute.full;
  int selective = recompute.selective;
  for (int kind = 0; kind < 2; ++kind) {
    const int full_here = std::min(full, sizes[kind]);
    const int selective_here = std::min(selective, sizes[kind] - full_here);
    full -= full_here;
    selective -= selective_here;
    result.counts[kind][kKeepInput] = full_here;
    result.counts[kind][kKeepSelective] = selective_here;
    result.counts[kind][kKeepAll] = sizes[kind] - full_here - selective_here;
  }
  return result;
}

int64_t CeilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

CostModel::CostModel(Profile profile, const Job& job)
    : profile_(std::move(profile)),
      topology_(job.topology),
      hidden_(job.hidden),
      bytes_per_element_(job.bytes_per_element),
      shared_table_bytes_(job.shared_table_bytes),
      token_table_(job.token_table),
      divided_state_(job.shard_optimizer_state) {
  double state = profile_.state_bytes_per_parameter_byte;
  if (job.shard_optimizer_state) {
    const double sharded = profile_.sharded_state_bytes_per_parameter_byte;
    state -= sharded - sharded / topology_.replicas();
  }
  for (const Stage& stage : shape().stages) {
    double bytes = stage.encoder_layers * profile_.layers[kEncoder].parameter_bytes +
                   stage.decoder_layers * profile_.layers[kDecoder].parameter_bytes;
    bytes += stage.embeddings() * profile_.embedding_parameter_bytes;
    if (stage.last) bytes += profile_.layers[kHead].parameter_bytes;
    const int uses = UsesOf(token_table_, stage);
    if (uses > 1)
      bytes = std::max(0.0, bytes - (uses - 1) * static_cast<double>(token_table_.parameter_bytes));
    parameter_bytes_.push_back(RoundToInteger(bytes));
    static_bytes_.push_back(RoundToInteger(bytes * state));
  }
}

bool CostModel::has_selective() const {
  return profile_.layers[kDecoder].has_selective &&
         (!profile_.layers[kEncoder].present || profile_.layers[kEncoder].has_selective);
}

bool CostModel::LayerOfKind(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const {
  const LayerProfile& layer = profile_.layers[kind];
  auto& backward = costs->backward[kind];
  if (sums.layout == Layout::kPadded && !layer.forward_table_ns.empty()) {
    const GridPoint point = LocateOnGrid(profile_.grid, layer.axes, sums, !layer.has_closed_form);
    const auto forward = Interpolate(layer.forward_table_ns, point);
    if (forward.has_value()) {
      costs->forward[kind] = *forward;
      for (int level = 0; level < kRecomputeLevels; ++level) {
        const std::vector<double>& table = layer.backward_table_ns[level];
        const auto measured = table.empty() ? std::nullopt : Interpolate(table, point);
        backward[level] = measured.value_or(*forward * layer.backward_ratio[level]);
      }
      return true;
    }
  }
  if (!layer.has_closed_form) return false;
  costs->forward[kind] = layer.forward(layer.loss_tokens_only ? LossPositions(sums) : sums);
  for (int level = 0; level < kRecomputeLevels; ++level) {
    backward[level] = costs->forward[kind] * layer.backward_ratio[level];
  }
  if (sums.layout == Layout::kPadded && !layer.forward_table_ns.empty()) RaiseToBorder(kind, sums, costs);
  return true;
}

// Interpolation between points lies above a convex closed form. Beyond the border of the table a micro-batch
// takes at least what a smaller one takes at the border: time never falls where the grid ends.
void CostModel::RaiseToBorder(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const {
  const LayerProfile& layer = profile_.layers[kind];
  std::array<GridPoint, 3> border;
  const int count = LocateBelow(profile_.grid, layer.axes, sums, &border);
  for (int i = 0; i < count; ++i) {
    const auto forward = Interpolate(layer.forward_table_ns, border[i]);
    if (!forward.has_value()) continue;
    costs->forward[kind] = std::max(costs->forward[kind], *forward);
    for (int level = 0; level < kRecomputeLevels; ++level) {
      const std::vector<double>& table = layer.backward_table_ns[level];
      const auto measured = table.empty() ? std::nullopt : Interpolate(table, border[i]);
      double& backward = costs->backward[kind][level];
      backward = std::max(backward, measured.value_or(*forward * layer.backward_ratio[level]));
    }
  }
}

bool CostModel::Layers(const TokenSums& sums, LayerCosts* costs) const {
  for (LayerKind kind : {kEncoder, kDecoder, kHead}) {
    if (profile_.layers[kind].present && !LayerOfKind(kind, sums, costs)) return false;
  }
  costs->source_embedding = SourceEmbeddingNs(sums);
  costs->target_embedding = TargetEmbeddingNs(sums);
  return true;
}

double CostModel::PassesNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const {
  const LayerProfile& layer = profile_.layers[kind];
  if (sums.layout == Layout::kPadded && !layer.forward_table_ns.empty()) {
    const GridPoint point = LocateOnGrid(profile_.grid, layer.axes, sums, !layer.has_closed_form);
    const auto forward = Interpolate(layer.forward_table_ns, point);
    if (forward.has_value()) {
      const std::vector<double>& table = layer.backward_table_ns[level];
      const auto backward = table.empty() ? std::nullopt : Interpolate(table, point);
      return *forward + backward.value_or(*forward * layer.backward_ratio[level]);
    }
    LayerCosts costs;
    if (LayerOfKind(kind, sums, &costs)) return costs.forward[kind] + costs.backward[kind][level];
  }
  if (!layer.has_closed_form) return std::numeric_limits<double>::infinity();
  const double forward = layer.forward(layer.loss_tokens_only ? LossPositions(sums) : sums);
  return forward + forward * layer.backward_ratio[level];
}

double CostModel::EmbeddingNs(const Stage& stage, const LayerCosts& costs) const {
  return (stage.embeds_source ? costs.source_embedding : 0) +
         (stage.embeds_target ? costs.target_embedding : 0);
}

int64_t CostModel::ForwardNs(int stage, const LayerCosts& costs) const {
  const Stage& layers = this->stage(stage);
  double time =
      layers.encoder_layers * costs.forward[kEncoder] + layers.decoder_layers * costs.forward[kDecoder];
  time += EmbeddingNs(layers, costs);
  if (layers.last) time += costs.forward[kHead];
  return RoundToInteger(time);
}

int64_t CostModel::BackwardNs(int stage, const LayerCosts& costs, const StageRecompute& recompute) const {
  const Stage& layers = this->stage(stage);
  const LevelCounts levels = CountLevels(layers, recompute);
  double time = 0;
  for (int kind = 0; kind < 2; ++kind) {
    for (int level = 0; level < kRecomputeLevels; ++level) {
      time += levels.counts[kind][level] * costs.backward[kind][level];
    }
  }
  time += EmbeddingNs(layers, costs);
  if (layers.last) time += costs.backward[kHead][kKeepAll];
  return RoundToInteger(time);
}

int64_t CostModel::WeightNs(int stage, const LayerCosts& costs) const {
  const Stage& layers = this->stage(stage);
  const int counts[2] = {layers.encoder_layers, layers.decoder_layers};
  double time = 0;
  for (int kind = 0; kind < 2; ++kind) {
    time += counts[kind] * costs.backward[kind][kKeepAll] * (1 - profile_.layers[kind].backward_input_share);
  }
  return RoundToInteger(time);
}

int64_t CostModel::BoundaryElements(int stage, const TokenSums& sums) const {
  double tokens = sums.source;
  if (!this->stage(stage).encoder_boundary) tokens += sums.target;
  // Whole tokens, also of shapes between samples.
  return RoundToInteger(static_cast<double>(static_cast<int64_t>(tokens)) * static_cast<double>(hidden_));
}

int64_t CostModel::BoundaryBytes(int stage, const TokenSums& sums) const {
  return BoundaryElements(stage, sums) * bytes_per_element_;
}

StageMemory CostModel::Memory(int stage, const TokenSums& sums) const {
  const Stage& layers = this->stage(stage);
  StageMemory memory;
  for (LayerKind kind : {kEncoder, kDecoder}) {
    const int count = kind == kEncoder ? layers.encoder_layers : layers.decoder_layers;
    if (count == 0) continue;
    const LayerProfile& layer = profile_.layers[kind];
    for (int level = 0; level < kRecomputeLevels; ++level) {
      memory.stored_layer[kind][level] = layer.stored[level](sums);
    }
    memory.peak = std::max(memory.peak, layer.peak(sums));
  }
  if (layers.last) memory.peak = std::max(memory.peak, profile_.layers[kHead].peak(sums));
  if (!layers.first) memory.input = BoundaryBytes(stage - 1, sums);
  if (!layers.last) memory.output = BoundaryBytes(stage, sums);
  double loaded = 0;
  if (layers.embeds_source) loaded += sums.source;
  if (layers.embeds_target) loaded += sums.target;
  if (layers.last) loaded += sums.loss;
  memory.tokens = kLoadedTokenBytes * static_cast<int64_t>(loaded);
  return memory;
}

int64_t CostModel::StoredBytes(int stage, const StageMemory& memory, const StageRecompute& recompute) const {
  const LevelCounts levels = CountLevels(this->stage(stage), recompute);
  int64_t bytes = 0;
  for (int kind = 0; kind < 2; ++kind) {
    for (int level = 0; level < kRecomputeLevels; ++level) {
      bytes += levels.counts[kind][level] * memory.stored_layer[kind][level];
    }
  }
  return bytes;
}

int64_t CostModel::PutAsideBytes(int stage, const StageMemory& memory) const {
  return StoredBytes(stage, memory, StageRecompute());
}

int64_t CostModel::RankStaticBytes(int position) const {
  int64_t bytes = 0;
  for (int stage = 0; stage < stages(); ++stage) {
    if (rank_of(stage) == position) bytes += static_bytes_[stage];
  }
  return bytes;
}

Link CostModel::LinkBetween(int from_rank, int to_rank) const {
  const int per_node = profile_.cluster.gpus_per_node;
  return from_rank / per_node == to_rank / per_node ? Link::kInsideNode : Link::kBetweenNodes;
}

int64_t CostModel::LinkNs(int64_t bytes, Link link) const {
  const Cluster& cluster = profile_.cluster;
  const bool inside = link == Link::kInsideNode;
  const double speed = inside ? cluster.intra_node_bytes_per_second : cluster.inter_node_bytes_per_second;
  const int64_t latency = inside ? cluster.intra_node_latency_ns : cluster.inter_node_latency_ns;
  return latency + RoundToInteger(static_cast<double>(bytes) / speed * 1e9);
}

int64_t CostModel::RingStepNs(int stage) const {
  const std::vector<int32_t> ranks = topology_.GradientGroup(stage);
  const int64_t bytes = CeilDivide(parameter_bytes_[stage], static_cast<int64_t>(ranks.size()));
  int64_t step = TransferNs(bytes, ranks.back(), ranks.front());
  // The slowest link of the ring sets the pace of every step.
  for (size_t i = 1; i < ranks.size(); ++i) step = std::max(step, TransferNs(bytes, ranks[i - 1], ranks[i]));
  return step;
}

int64_t CostModel::HalfOfAllReduceNs(int stage) const {
  const int steps = topology_.replicas() - 1;
  if (steps == 0) return 0;
  return RoundToInteger(static_cast<double>(steps) * static_cast<double>(RingStepNs(stage)));
}

int64_t CostModel::ReduceNs(int stage) const { return (divided_state_ ? 1 : 2) * HalfOfAllReduceNs(stage); }

int64_t CostModel::StepBytes() const {
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

int64_t CostModel::OptimizerNs(int stage) const {
  const int64_t shares = divided_state_ ? topology_.replicas() : 1;
  const int64_t update = RoundToInteger(static_cast<double>(CeilDivide(parameter_bytes_[stage], shares)) *
                                        profile_.optimizer_ns_per_parameter_byte);
  return divided_state_ ? update + HalfOfAllReduceNs(stage) : update;
}

}  // namespace penstock::core
