#include "planner/core/calibrate/revise_profile.h"

#include <algorithm>
#include <array>
#include <string>

namespace penstock::core {
namespace {

LayerKind KindOfLayer(const std::string& name, Architecture architecture) {
  if (name == "head") return kHead;
  if (name == "dense") return kDense;
  return architecture == Architecture::kT5 && name == "encoder" ? kEncoder : kDecoder;
}

void Multiply(const ForwardFactors& by, v1::LayerTime* time) {
  time->set_fixed_ns(time->fixed_ns() * by.fixed);
  time->set_packed_row_ns(time->packed_row_ns() * by.fixed);
  time->set_divided_row_ns(time->divided_row_ns() * by.fixed);
  time->set_target_token_ns(time->target_token_ns() * by.tokens);
  time->set_source_token_ns(time->source_token_ns() * by.tokens);
  time->set_target_square_ns(time->target_square_ns() * by.squares);
  time->set_cross_ns(time->cross_ns() * by.squares);
  time->set_source_square_ns(time->source_square_ns() * by.squares);
  time->set_target_call_square_ns(time->target_call_square_ns() * by.squares);
  time->set_source_call_square_ns(time->source_call_square_ns() * by.squares);
}

ForwardFactors Times(const ForwardFactors& factors, const ForwardFactors& others, double by) {
  return {.fixed = factors.fixed * others.fixed * by,
          .tokens = factors.tokens * others.tokens * by,
          .squares = factors.squares * others.squares * by};
}

void Multiply(double by, v1::Table* table) {
  for (double& value : *table->mutable_values()) value *= by;
}

void MultiplyTables(const ForwardFactors& forward, const std::array<double, kRecomputeLevels>& ratio,
                    v1::LayerCost* layer) {
  // A kind with tables has one factor for all terms.
  if (layer->has_forward_ms()) Multiply(forward.tokens, layer->mutable_forward_ms());
  if (layer->has_backward_none_ms())
    Multiply(forward.tokens * ratio[kKeepAll], layer->mutable_backward_none_ms());
  if (layer->has_backward_selective_ms())
    Multiply(forward.tokens * ratio[kKeepSelective], layer->mutable_backward_selective_ms());
  if (layer->has_backward_full_ms())
    Multiply(forward.tokens * ratio[kKeepInput], layer->mutable_backward_full_ms());
}

void ReviseLayer(const CostFactors& factors, LayerKind kind, v1::LayerCost* layer) {
  ForwardFactors forward = factors.forward[kind];
  forward.fixed *= factors.all;
  forward.tokens *= factors.all;
  forward.squares *= factors.all;
  const auto& ratio = factors.backward_ratio[kind];
  if (layer->has_forward()) Multiply(forward, layer->mutable_forward());
  for (v1::TensorCost& cost : *layer->mutable_tensor()) {
    if (cost.has_forward()) Multiply(forward, cost.mutable_forward());
  }
  // Unset, it stands for one forward pass more than without recompute.
  if (layer->backward_ratio_full() == 0 && kind != kHead)
    layer->set_backward_ratio_full(layer->backward_ratio_none() + 1);
  layer->set_backward_ratio_none(layer->backward_ratio_none() * ratio[kKeepAll]);
  // Measurements are noisy, and recomputing more never takes less. 0 is unset.
  const auto revised = [&](double before, double factor, double least) {
    return before == 0 ? 0 : std::max(before * factor, least);
  };
  layer->set_backward_ratio_selective(
      revised(layer->backward_ratio_selective(), ratio[kKeepSelective], layer->backward_ratio_none()));
  layer->set_backward_ratio_full(
      revised(layer->backward_ratio_full(), ratio[kKeepInput],
              std::max(layer->backward_ratio_none(), layer->backward_ratio_selective())));
  MultiplyTables(forward, ratio, layer);
  if (kind == kHead) return;
  if (layer->has_backward_input()) {
    const ForwardFactors backward = Times(forward, factors.backward[kind], ratio[kKeepAll]);
    Multiply(Times(backward, {}, factors.input_share), layer->mutable_backward_input());
    Multiply(Times(backward, {}, factors.weight_share), layer->mutable_backward_weight());
  }
  const double weight =
      std::clamp((1 - layer->backward_input_share()) * factors.weight_share, kLeastShare, 1 - kLeastShare);
  layer->set_backward_input_share(1 - weight);
}

int64_t ScaledLatency(int64_t latency_ns, double factor) {
  return static_cast<int64_t>(static_cast<double>(latency_ns) * factor);
}

void ReviseLinks(const std::array<double, kLinks>& factors, v1::Cluster* cluster) {
  const double inside = factors[static_cast<size_t>(Link::kInsideNode)];
  const double between = factors[static_cast<size_t>(Link::kBetweenNodes)];
  // 0 stands for the speed inside a node, which is about to change.
  const double speed_between = cluster->inter_node_bytes_per_second() > 0
                                   ? cluster->inter_node_bytes_per_second()
                                   : cluster->intra_node_bytes_per_second();
  if (cluster->inter_node_bytes_per_second() > 0 || inside != between)
    cluster->set_inter_node_bytes_per_second(speed_between / between);
  cluster->set_intra_node_bytes_per_second(cluster->intra_node_bytes_per_second() / inside);
  cluster->set_intra_node_latency_ns(ScaledLatency(cluster->intra_node_latency_ns(), inside));
  cluster->set_inter_node_latency_ns(ScaledLatency(cluster->inter_node_latency_ns(), between));
}

// Loads of meshes with other numbers of expert ranks stay.
void ReviseLoad(const ExpertLoad& load, v1::CostProfile* profile) {
  auto& loads = *profile->mutable_expert_loads();
  const auto ranks = static_cast<uint32_t>(load.ranks);
  const auto same = std::find_if(loads.begin(), loads.end(),
                                 [&](const v1::ExpertLoad& known) { return known.ranks() == ranks; });
  v1::ExpertLoad& revised = same != loads.end() ? *same : *loads.Add();
  revised.set_ranks(ranks);
  revised.set_fullest(load.fullest);
  std::sort(loads.begin(), loads.end(), [](const v1::ExpertLoad& left, const v1::ExpertLoad& right) {
    return left.ranks() < right.ranks();
  });
}

}  // namespace

v1::CostProfile ReviseProfile(const v1::CostProfile& profile, Architecture architecture,
                              const CostFactors& factors) {
  v1::CostProfile revised = profile;
  revised.set_version(profile.version() + 1);
  for (v1::LayerCost& layer : *revised.mutable_layers())
    ReviseLayer(factors, KindOfLayer(layer.name(), architecture), &layer);
  const double embedding = factors.embedding * factors.all;
  if (revised.has_embedding_forward())
    Multiply({embedding, embedding, embedding}, revised.mutable_embedding_forward());
  const double step = factors.optimizer * factors.all;
  revised.set_optimizer_ns_per_parameter_byte(revised.optimizer_ns_per_parameter_byte() * step);
  revised.set_optimizer_fixed_ns(revised.optimizer_fixed_ns() * step);
  ReviseLinks(factors.links, revised.mutable_cluster());
  if (factors.slow_ranks.has_value()) {
    revised.clear_slow_ranks();
    for (const SlowRank& slow : *factors.slow_ranks) {
      v1::SlowRank* const added = revised.add_slow_ranks();
      added->set_rank(static_cast<uint32_t>(slow.rank));
      added->set_factor(slow.factor);
    }
  }
  if (factors.slow_links.has_value()) {
    revised.clear_slow_links();
    for (const SlowLink& slow : *factors.slow_links) {
      v1::SlowLink* const added = revised.add_slow_links();
      added->set_from(static_cast<uint32_t>(slow.from));
      added->set_to(static_cast<uint32_t>(slow.to));
      added->set_factor(slow.factor);
    }
  }
  if (factors.pass_noise.has_value()) revised.set_pass_noise(*factors.pass_noise);
  revised.set_waiting_share(1 - (1 - factors.host_share) / std::max(factors.waiting, 1.0));
  if (factors.expert_load.has_value()) ReviseLoad(*factors.expert_load, &revised);
  return revised;
}

}  // namespace penstock::core
