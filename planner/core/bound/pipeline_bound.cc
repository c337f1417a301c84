#include "planner/core/bound/pipeline_bound.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/core/cost/half_counts.h"

namespace penstock::core {
namespace {

// Of a gather or a sum, nanoseconds.
constexpr double kCollectiveRounding = 2;

void AddBytes(int layers, const PerToken& bytes, PerToken* sum) {
  sum->source += layers * bytes.source;
  sum->target += layers * bytes.target;
}

// By kind: of(layer), and of(layer, form) of the closed forms of its backward pass. 0 where there are none.
template <typename Of>
LayerVector OfLayers(const std::array<LayerBound, kLayerKinds>& layers, const Of& of) {
  LayerVector result = {};
  for (const LayerKind kind : kAllKinds) {
    if (layers[kind].present) result[kind] = of(layers[kind]);
  }
  for (const LayerKind kind : kKindsOfStacks) {
    if (!layers[kind].has_backward_forms) continue;
    const BackwardForms& backward = layers[kind].backward_forms;
    result[kInputGradients + kind] = of(layers[kind], backward.input);
    result[kWeightGradients + kind] = of(layers[kind], backward.weight);
  }
  return result;
}

// Gathers and sums over tensor ranks in a forward or in a backward pass, at the level that has fewest.
void AddExchange(const Stage& stage, bool divided, bool forward, LayerVector* pass) {
  for (const LayerKind kind : kKindsOfStacks) {
    const HalfCounts halves = forward ? ForwardHalves(kind, stage.crosses, divided)
                                      : BackwardHalves(kind, stage.crosses, divided, kKeepAll);
    (*pass)[kSourceExchange] += static_cast<double>(stage.count(kind) * halves.source);
    (*pass)[kTargetExchange] += static_cast<double>(stage.count(kind) * halves.target);
  }
  (*pass)[kSourceExchange] += stage.embeds_source ? 1 : 0;
  (*pass)[kTargetExchange] += stage.embeds_target ? 1 : 0;
  if (stage.last && forward) (*pass)[kTargetExchange] += static_cast<double>(kHeadHalves);
}

bool PacksAll(const Job& job) {
  if (job.policy == Policy::kDynamic) return job.layout == LayoutChoice::kPacked;
  return job.policy == Policy::kPacked || job.policy == Policy::kTokenBudget;
}

StageBound BoundStage(const CostModel& costs, const std::array<LayerBound, kLayerKinds>& layers, int index) {
  const Stage& stage = costs.stage(index);
  StageBound bound;
  for (int pass = 0; pass < kBoundPasses; ++pass) {
    for (const LayerKind kind : kAllKinds) {
      const int count = stage.count(kind);
      if (count > 0) bound.passes[pass][kind] = count * layers[kind].scale[pass];
    }
    for (const LayerKind kind : kKindsOfStacks) {
      bound.passes[pass][kInputGradients + kind] = stage.count(kind) * layers[kind].input_scale[pass];
      bound.passes[pass][kWeightGradients + kind] = stage.count(kind) * layers[kind].weight_scale[pass];
    }
    // An embedding takes the same time both ways; its gradient is never put off.
    if (pass == static_cast<int>(BoundPass::kWeight)) continue;
    bound.passes[pass][kSourceEmbedding] = stage.embeds_source ? 1 : 0;
    bound.passes[pass][kTargetEmbedding] = stage.embeds_target ? 1 : 0;
    AddExchange(stage, costs.group().feeds_own_tokens(), pass == static_cast<int>(BoundPass::kForward),
                &bound.passes[pass]);
  }
  bound.options.resize(1);
  for (const LayerKind kind : kKindsOfStacks) {
    const int count = stage.count(kind);
    if (count == 0) continue;
    const std::vector<StageBound::Option> before = std::move(bound.options);
    bound.options.clear();
    for (const StageBound::Option& option : before) {
      for (const LevelBound& level : layers[kind].levels) {
        bound.options.push_back(option);
        AddBytes(count, level.kept, &bound.options.back().kept);
        bound.options.back().extra[kind] = count * level.extra;
      }
    }
  }
  bound.reduce_ns = static_cast<double>(costs.LeastReduceNs(index));
  return bound;
}

TransferBound BoundTransfer(const CostModel& costs, const Job& job, int stage) {
  TransferBound bound;
  if (costs.position_of(stage) == costs.position_of(stage + 1)) return bound;
  bound.latency_ns = std::numeric_limits<double>::infinity();
  double speed = 0;
  const Topology& topology = job.topology;
  const Cluster& cluster = costs.profile().cluster;
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    for (int place = 0; place < costs.group().ranks(); ++place) {
      const int from = topology.RankOf(replica, stage, place);
      const Link link = costs.LinkBetween(from, topology.RankOf(replica, stage + 1, place));
      const bool inside = link == Link::kInsideNode;
      const int64_t latency = inside ? cluster.intra_node_latency_ns : cluster.inter_node_latency_ns;
      bound.latency_ns = std::min(bound.latency_ns, static_cast<double>(latency));
      speed =
          std::max(speed, inside ? cluster.intra_node_bytes_per_second : cluster.inter_node_bytes_per_second);
    }
  }
  // One place has at least its part.
  const double token_ns =
      static_cast<double>(job.hidden * job.bytes_per_element) / speed * 1e9 / costs.group().ranks();
  bound.ns.source = token_ns;
  if (!costs.stage(stage).encoder_boundary) bound.ns.target = token_ns;
  return bound;
}

// No rank of the position has more for micro-batches.
double MostRoom(const CostModel& costs, const Job& job, int position) {
  if (job.memory_limits.alike())
    return static_cast<double>(job.memory_limits.common - costs.LeastRankStaticBytes(position));
  int64_t most = 0;
  for (int rank = 0; rank < job.topology.ranks(); ++rank) {
    if (job.topology.PlaceOf(rank).position != position) continue;
    most = std::max(most, job.memory_limits.Of(rank) - costs.StaticBytesOfRank(rank));
  }
  return static_cast<double>(most);
}

RankBound BoundRank(const CostModel& costs, const Job& job, const std::array<LayerBound, kLayerKinds>& layers,
                    int rank) {
  RankBound bound;
  bound.available_bytes = MostRoom(costs, job, rank);
  bound.price_ns_per_byte = std::numeric_limits<double>::infinity();
  for (int index = 0; index < costs.stages(); ++index) {
    if (costs.position_of(index) != rank) continue;
    bound.stages.push_back(index);
    const Stage& stage = costs.stage(index);
    bound.peak = {};
    for (const LayerKind kind : kAllKinds) {
      const int count = stage.count(kind);
      if (count == 0) continue;
      bound.peak[kind] = layers[kind].peak;
      if (kind == kHead) continue;
      AddBytes(count, layers[kind].kept, &bound.kept);
      AddBytes(count, layers[kind].least_kept, &bound.least_kept);
      bound.price_ns_per_byte = std::min(bound.price_ns_per_byte, layers[kind].price_ns_per_byte);
    }
  }
  return bound;
}

}  // namespace

PipelineBound::PipelineBound(const CostModel& costs, const Job& job)
    : embedding(costs.profile().embedding_forward.AtBestEfficiency()),
      split(job.schedule == ScheduleFamily::kAuto || job.schedule == ScheduleFamily::kSplitBackward) {
  contexts = costs.group().context;
  // Each is rounded to a nanosecond, and its bytes to bytes.
  const double latency = static_cast<double>(costs.exchange_model().HalfLatencyNs()) - kCollectiveRounding;
  if (costs.group().tensor > 1 && latency >= 0) {
    exchange_token_ns = costs.exchange_model().HalfTokenNs();
    exchange_ns = latency;
  }
  for (const LayerKind kind : kAllKinds) {
    layers[kind] = BoundLayer(costs, kind, job.recompute, PacksAll(job));
  }
  for (int stage = 0; stage < costs.stages(); ++stage) {
    stages.push_back(BoundStage(costs, layers, stage));
    if (stage + 1 < costs.stages()) stages.back().transfer = BoundTransfer(costs, job, stage);
  }
  for (int rank = 0; rank < costs.positions(); ++rank) {
    ranks.push_back(BoundRank(costs, job, layers, rank));
    optimizer_ns = std::max(optimizer_ns, static_cast<double>(costs.WholeIterationNs(rank)));
  }
}

LayerVector PipelineBound::Linear(const TokenSums& sums) const {
  LayerVector linear = OfLayers(layers, [&](const LayerBound& layer, const auto&... backward) {
    return layer.Linear(backward..., sums);
  });
  linear[kSourceEmbedding] = LinearNs(embedding, SourceSide(sums)) / contexts;
  linear[kTargetEmbedding] = LinearNs(embedding, TargetSide(sums)) / contexts;
  linear[kSourceExchange] = exchange_token_ns / contexts * sums.source;
  linear[kTargetExchange] = exchange_token_ns / contexts * sums.target;
  return linear;
}

LayerVector PipelineBound::Overhead(const TokenSums& each) const {
  LayerVector overhead = OfLayers(layers, [&](const LayerBound& layer, const auto&... backward) {
    return layer.Overhead(backward..., each);
  });
  overhead[kSourceEmbedding] = OverheadNs(embedding, SourceSide(each), contexts);
  overhead[kTargetEmbedding] = OverheadNs(embedding, TargetSide(each), contexts);
  overhead[kSourceExchange] = exchange_ns;
  overhead[kTargetExchange] = exchange_ns;
  return overhead;
}

}  // namespace penstock::core
