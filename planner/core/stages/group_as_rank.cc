#include "planner/core/stages/group_as_rank.h"

#include <algorithm>

#include "planner/core/cost/exchange_model.h"
#include "planner/core/cost/half_counts.h"
#include "planner/core/cost/layer_model.h"
#include "planner/core/cost/loaded_experts.h"
#include "planner/core/cost/slow_groups.h"
#include "planner/core/topology/nodes.h"

namespace penstock::core {
namespace {

// The even share's time as a function of the whole: a share has so many tokens less, and reaches half of its
// speed, or a point of its table of efficiency, with so many more of the whole.
LayerTime OfWhole(LayerTime form, double divisor, double contexts) {
  form.fixed_ns /= divisor;
  form.half_efficiency_tokens *= contexts;
  for (EfficiencyPoint& point : form.efficiency) point.tokens *= contexts;
  for (double* rate : {&form.target_token_ns, &form.target_square_ns, &form.cross_ns, &form.source_token_ns,
                       &form.source_square_ns, &form.packed_row_ns, &form.target_call_square_ns,
                       &form.source_call_square_ns}) {
    *rate /= divisor * contexts;
  }
  // Nothing is divided over a rank's only context rank.
  form.divided_row_ns = 0;
  return form;
}

void AddHalves(const HalfCounts& halves, double each_ns, LayerTime* form) {
  form->source_token_ns += each_ns * static_cast<double>(halves.source);
  form->target_token_ns += each_ns * static_cast<double>(halves.target);
}

// What is exchanged in both passes, as a part of the forward pass where the backward pass is a multiple of
// it.
void AddExchange(LayerKind kind, bool crosses, const GroupShape& group, const ExchangeModel& exchange,
                 LayerProfile* layer) {
  if (layer->backward_forms.has_value()) {
    const double share = (group.tensor > 1 ? exchange.HalfTokenNs() : 0) / group.context;
    const bool divided = group.feeds_own_tokens();
    AddHalves(ForwardHalves(kind, crosses, divided), share, &layer->forward);
    AddHalves(BackwardHalves(kind, crosses, divided, kKeepAll), share, &layer->backward_forms->input);
    const double rows = kind == kDecoder ? exchange.RowsTokenNs() / group.context : 0;
    layer->forward.target_token_ns += rows / 2;
    layer->backward_forms->input.target_token_ns += rows / 2;
    return;
  }
  const double each = 1.0 / group.context / (1 + layer->backward_ratio[kKeepAll]);
  const double share = group.tensor > 1 ? exchange.HalfTokenNs() * each : 0;
  if (kind == kHead) {
    layer->forward.target_token_ns += 2 * share;
    return;
  }
  const HalfCounts forward = ForwardHalves(kind, crosses, group.feeds_own_tokens());
  const HalfCounts backward = BackwardHalves(kind, crosses, group.feeds_own_tokens(), kKeepAll);
  layer->forward.source_token_ns += share * static_cast<double>(forward.source + backward.source);
  layer->forward.target_token_ns += share * static_cast<double>(forward.target + backward.target) +
                                    (kind == kDecoder ? exchange.RowsTokenNs() * each : 0);
}

// Of one rank of the group.
double ParameterBytesOf(double bytes, LayerKind kind, const Job& job) {
  const GroupShape& group = job.topology.shape().group;
  const double experts =
      kind == kDecoder && group.divides_experts() ? static_cast<double>(job.expert_parameter_bytes) : 0;
  return std::max(0.0, bytes - experts) / group.tensor + experts / group.expert;
}

void Divide(double by, LayerBytes* bytes) {
  bytes->source_token_bytes /= by;
  bytes->target_token_bytes /= by;
}

void DivideTables(double by, LayerProfile* layer) {
  for (double& value : layer->forward_table_ns) value /= by;
  for (std::vector<double>& table : layer->backward_table_ns) {
    for (double& value : table) value /= by;
  }
}

void DropTables(LayerProfile* layer) {
  layer->forward_table_ns.clear();
  for (std::vector<double>& table : layer->backward_table_ns) table.clear();
}

}  // namespace

Profile ProfileOfGroup(const Profile& profile, const Job& job) {
  const GroupShape& group = job.topology.shape().group;
  if (group.ranks() == 1) return profile;
  Profile result = LoadedProfile(profile, job);
  const Profile loaded = result;
  const LayerModel model(loaded, group);
  const ExchangeModel exchange(loaded, job, Nodes(job.topology, profile.cluster.gpus_per_node));
  const bool crosses = job.topology.shape().stages.front().crosses;
  for (const LayerKind kind : kAllKinds) {
    LayerProfile& layer = result.layers[kind];
    if (!layer.present) continue;
    layer.forward = OfWhole(model.form(kind), model.form_divisor(kind), group.context);
    if (layer.backward_forms.has_value()) {
      const double divisor = model.table_divisor(kind);
      layer.backward_forms->input = OfWhole(layer.backward_forms->input, divisor, group.context);
      layer.backward_forms->weight = OfWhole(layer.backward_forms->weight, divisor, group.context);
    }
    AddExchange(kind, crosses, group, exchange, &layer);
    // Rectangles are those of a rank that has all tokens.
    if (group.context > 1) {
      DropTables(&layer);
    } else {
      DivideTables(model.table_divisor(kind), &layer);
    }
    layer.parameter_bytes = ParameterBytesOf(layer.parameter_bytes, kind, job);
    for (LayerBytes& stored : layer.stored) Divide(group.ranks(), &stored);
    Divide(group.ranks(), &layer.peak);
  }
  result.embedding_forward = OfWhole(profile.embedding_forward, 1, group.context);
  result.embedding_parameter_bytes /= group.tensor;
  result.slow_ranks.clear();
  const Topology groups = JobOfGroups(job).topology;
  const SlowGroups slow_groups(profile.slow_ranks, job.topology);
  for (int rank = 0; rank < groups.ranks(); ++rank) {
    const RankPlace place = groups.PlaceOf(rank);
    const double speed = slow_groups.SpeedOf(place.replica, place.position);
    if (speed < 1) result.slow_ranks.push_back({rank, 1 / speed});
  }
  result.slow_links.clear();
  for (const SlowLink& slow : profile.slow_links) {
    const RankPlace from = job.topology.PlaceOf(slow.from), to = job.topology.PlaceOf(slow.to);
    const int32_t from_group = groups.RankAt(from.replica, from.position);
    const int32_t to_group = groups.RankAt(to.replica, to.position);
    // Two stages exchange between equal places and wait for the slowest. Rings of gradients go on from the
    // last place of a replica to the first one of the next.
    const bool equal_places = from.context == to.context && from.tensor == to.tensor;
    if (from_group == to_group || (from.replica == to.replica && !equal_places)) continue;
    result.slow_links.push_back({from_group, to_group, slow.factor});
  }
  // Equal places exchange side by side.
  result.cluster.intra_node_bytes_per_second *= group.ranks();
  result.cluster.inter_node_bytes_per_second *= group.ranks();
  if (job.shard_optimizer_state) {
    // Context ranks divide the state, too: what a replica has of it here is divided over replicas alone.
    double& sharded = result.sharded_state_bytes_per_parameter_byte;
    result.state_bytes_per_parameter_byte -= sharded - sharded / group.context;
    sharded /= group.context;
  }
  if (job.parameter_shares) {
    // Context ranks have shares, too: here a rank's is that of all of them. Weights and gradients stay, which
    // are the difference of the two.
    const double share = result.state_bytes_per_parameter_byte / group.context;
    result.sharded_state_bytes_per_parameter_byte -= result.state_bytes_per_parameter_byte - share;
    result.state_bytes_per_parameter_byte = share;
  }
  return result;
}

Job JobOfGroups(const Job& job) {
  const int tensor = job.topology.shape().group.tensor;
  if (job.topology.shape().group.ranks() == 1) return job;
  Job result = job;
  PipelineShape shape = job.topology.shape();
  shape.group = GroupShape();
  result.topology = job.topology.WithShape(shape);
  const int32_t ranks = job.topology.shape().group.ranks();
  result.world.first_rank /= ranks;
  result.world.ranks = (result.world.ranks + ranks - 1) / ranks;
  if (!result.share_weights.alike()) {
    // A group's share is that of all its ranks.
    result.share_weights.of_ranks.assign(result.topology.ranks(), 0);
    for (int rank = 0; rank < job.topology.ranks(); ++rank) {
      const RankPlace place = job.topology.PlaceOf(rank);
      const int32_t group = result.topology.RankAt(place.replica, place.position);
      result.share_weights.of_ranks[group] += job.share_weights.Of(rank);
    }
  }
  if (!result.memory_limits.alike()) {
    // A group has no more than each of its ranks.
    result.memory_limits.of_ranks.assign(result.topology.ranks(), result.memory_limits.Most());
    for (int rank = 0; rank < job.topology.ranks(); ++rank) {
      const RankPlace place = job.topology.PlaceOf(rank);
      int64_t& limit = result.memory_limits.of_ranks[result.topology.RankAt(place.replica, place.position)];
      limit = std::min(limit, job.memory_limits.Of(rank));
    }
  }
  result.token_table.parameter_bytes /= tensor;
  result.token_table.gradient_bytes /= tensor;
  return result;
}

}  // namespace penstock::core
