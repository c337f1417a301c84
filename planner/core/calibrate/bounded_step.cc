#include "planner/core/calibrate/bounded_step.h"

#include <algorithm>
#include <cstdint>

namespace penstock::core {
namespace {

double Bounded(double before, double revised) {
  if (before == 0 || revised == 0) return revised;
  return std::clamp(revised, before / kMostStep, before * kMostStep);
}

int64_t BoundedNs(int64_t before, int64_t revised) {
  return static_cast<int64_t>(Bounded(static_cast<double>(before), static_cast<double>(revised)));
}

void Bound(const v1::LayerTime& before, v1::LayerTime* time) {
  time->set_fixed_ns(Bounded(before.fixed_ns(), time->fixed_ns()));
  time->set_packed_row_ns(Bounded(before.packed_row_ns(), time->packed_row_ns()));
  time->set_target_token_ns(Bounded(before.target_token_ns(), time->target_token_ns()));
  time->set_target_square_ns(Bounded(before.target_square_ns(), time->target_square_ns()));
  time->set_cross_ns(Bounded(before.cross_ns(), time->cross_ns()));
  time->set_source_token_ns(Bounded(before.source_token_ns(), time->source_token_ns()));
  time->set_divided_row_ns(Bounded(before.divided_row_ns(), time->divided_row_ns()));
  time->set_source_square_ns(Bounded(before.source_square_ns(), time->source_square_ns()));
  time->set_target_call_square_ns(Bounded(before.target_call_square_ns(), time->target_call_square_ns()));
  time->set_source_call_square_ns(Bounded(before.source_call_square_ns(), time->source_call_square_ns()));
}

// NaN is a point that was not profiled, in both.
void Bound(const v1::Table& before, v1::Table* table) {
  for (int i = 0; i < std::min(before.values_size(), table->values_size()); ++i)
    table->set_values(i, Bounded(before.values(i), table->values(i)));
}

void BoundTables(const v1::LayerCost& before, v1::LayerCost* layer) {
  if (layer->has_forward_ms()) Bound(before.forward_ms(), layer->mutable_forward_ms());
  if (layer->has_backward_none_ms()) Bound(before.backward_none_ms(), layer->mutable_backward_none_ms());
  if (layer->has_backward_selective_ms())
    Bound(before.backward_selective_ms(), layer->mutable_backward_selective_ms());
  if (layer->has_backward_full_ms()) Bound(before.backward_full_ms(), layer->mutable_backward_full_ms());
}

// Both shares of a backward pass.
double BoundedShare(double before, double revised) {
  return 1 - Bounded(1 - before, 1 - Bounded(before, revised));
}

void Bound(const v1::LayerCost& before, v1::LayerCost* layer) {
  if (layer->has_forward()) Bound(before.forward(), layer->mutable_forward());
  if (layer->has_backward_input()) Bound(before.backward_input(), layer->mutable_backward_input());
  if (layer->has_backward_weight()) Bound(before.backward_weight(), layer->mutable_backward_weight());
  for (int i = 0; i < std::min(before.tensor_size(), layer->tensor_size()); ++i) {
    if (layer->tensor(i).has_forward())
      Bound(before.tensor(i).forward(), layer->mutable_tensor(i)->mutable_forward());
  }
  layer->set_backward_ratio_none(Bounded(before.backward_ratio_none(), layer->backward_ratio_none()));
  layer->set_backward_ratio_selective(
      Bounded(before.backward_ratio_selective(), layer->backward_ratio_selective()));
  layer->set_backward_ratio_full(Bounded(before.backward_ratio_full(), layer->backward_ratio_full()));
  layer->set_backward_input_share(BoundedShare(before.backward_input_share(), layer->backward_input_share()));
  BoundTables(before, layer);
}

// Between nodes 0 stands for the speed inside of them.
double SpeedBetween(const v1::Cluster& cluster) {
  return cluster.inter_node_bytes_per_second() > 0 ? cluster.inter_node_bytes_per_second()
                                                   : cluster.intra_node_bytes_per_second();
}

void Bound(const v1::Cluster& before, v1::Cluster* cluster) {
  if (before.inter_node_bytes_per_second() > 0 || cluster->inter_node_bytes_per_second() > 0)
    cluster->set_inter_node_bytes_per_second(Bounded(SpeedBetween(before), SpeedBetween(*cluster)));
  cluster->set_intra_node_bytes_per_second(
      Bounded(before.intra_node_bytes_per_second(), cluster->intra_node_bytes_per_second()));
  cluster->set_intra_node_latency_ns(
      BoundedNs(before.intra_node_latency_ns(), cluster->intra_node_latency_ns()));
  cluster->set_inter_node_latency_ns(
      BoundedNs(before.inter_node_latency_ns(), cluster->inter_node_latency_ns()));
}

// By waiting computing takes 1 / (1 - share) times as long.
double BoundedWaiting(double before, double revised) {
  return std::min(revised, 1 - (1 - before) / kMostStep);
}

}  // namespace

v1::CostProfile BoundedStep(const v1::CostProfile& before, v1::CostProfile revised) {
  for (int i = 0; i < std::min(before.layers_size(), revised.layers_size()); ++i)
    Bound(before.layers(i), revised.mutable_layers(i));
  if (revised.has_embedding_forward()) Bound(before.embedding_forward(), revised.mutable_embedding_forward());
  revised.set_optimizer_ns_per_parameter_byte(
      Bounded(before.optimizer_ns_per_parameter_byte(), revised.optimizer_ns_per_parameter_byte()));
  revised.set_optimizer_fixed_ns(Bounded(before.optimizer_fixed_ns(), revised.optimizer_fixed_ns()));
  Bound(before.cluster(), revised.mutable_cluster());
  revised.set_waiting_share(BoundedWaiting(before.waiting_share(), revised.waiting_share()));
  return revised;
}

}  // namespace penstock::core
