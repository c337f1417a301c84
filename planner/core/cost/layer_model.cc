#include "planner/core/cost/layer_model.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "planner/core/cost/grid_table.h"

namespace penstock::core {

LayerModel::LayerModel(const Profile& profile, const GroupShape& group) : profile_(profile) {
  form_divisor_.fill(1);
  table_divisor_.fill(1);
  for (const LayerKind kind : kAllKinds) {
    const LayerProfile& layer = profile.layers[kind];
    form_[kind] = layer.forward;
    const TensorCost* const cost = layer.AtDegree(group.tensor, group.expert);
    if (cost == nullptr) continue;
    table_divisor_[kind] = cost->degree * cost->efficiency;
    if (cost->measured) {
      form_[kind] = cost->forward;
    } else {
      form_divisor_[kind] = table_divisor_[kind];
    }
  }
}

bool LayerModel::LayerOfKind(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const {
  const LayerProfile& layer = profile_.layers[kind];
  if (!layer.backward_forms.has_value()) {
    if (!PassesOfKind(kind, sums, costs)) return false;
    costs->weight[kind] = costs->backward[kind][kKeepAll] * (1 - layer.backward_input_share);
    return true;
  }
  const BackwardParts parts = PartsOfBackward(kind, sums);
  costs->forward[kind] = FormNs(kind, sums);
  for (const RecomputeLevel level : {kKeepAll, kKeepSelective, kKeepInput})
    costs->backward[kind][level] = AtLevel(kind, level, parts, costs->forward[kind]);
  costs->weight[kind] = parts.weight;
  return true;
}

LayerModel::BackwardParts LayerModel::PartsOfBackward(LayerKind kind, const TokenSums& sums) const {
  const BackwardForms& forms = *profile_.layers[kind].backward_forms;
  return {.input = forms.input(sums) / table_divisor_[kind],
          .weight = forms.weight(sums) / table_divisor_[kind]};
}

bool LayerModel::PassesOfKind(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const {
  const LayerProfile& layer = profile_.layers[kind];
  auto& backward = costs->backward[kind];
  if (sums.layout == Layout::kPadded && !layer.forward_table_ns.empty()) {
    const GridPoint point = LocateOnGrid(profile_.grid, layer.axes, sums, !layer.has_closed_form);
    const auto forward = Interpolate(layer.forward_table_ns, point);
    if (forward.has_value()) {
      const double divisor = table_divisor_[kind];
      costs->forward[kind] = *forward / divisor;
      for (int level = 0; level < kRecomputeLevels; ++level) {
        const std::vector<double>& table = layer.backward_table_ns[level];
        const auto measured = table.empty() ? std::nullopt : Interpolate(table, point);
        backward[level] = measured.value_or(*forward * layer.backward_ratio[level]) / divisor;
      }
      return true;
    }
  }
  if (!layer.has_closed_form) return false;
  costs->forward[kind] = FormNs(kind, sums);
  for (int level = 0; level < kRecomputeLevels; ++level) {
    backward[level] = costs->forward[kind] * layer.backward_ratio[level];
  }
  if (sums.layout == Layout::kPadded && !layer.forward_table_ns.empty()) RaiseToBorder(kind, sums, costs);
  return true;
}

// Interpolation between points lies above a convex closed form. Beyond the border of the table a micro-batch
// takes at least what a smaller one takes at the border: time never falls where the grid ends.
void LayerModel::RaiseToBorder(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const {
  const LayerProfile& layer = profile_.layers[kind];
  const double divisor = table_divisor_[kind];
  std::array<GridPoint, 3> border;
  const int count = LocateBelow(profile_.grid, layer.axes, sums, &border);
  for (int i = 0; i < count; ++i) {
    const auto forward = Interpolate(layer.forward_table_ns, border[i]);
    if (!forward.has_value()) continue;
    costs->forward[kind] = std::max(costs->forward[kind], *forward / divisor);
    for (int level = 0; level < kRecomputeLevels; ++level) {
      const std::vector<double>& table = layer.backward_table_ns[level];
      const auto measured = table.empty() ? std::nullopt : Interpolate(table, border[i]);
      double& backward = costs->backward[kind][level];
      backward = std::max(backward, measured.value_or(*forward * layer.backward_ratio[level]) / divisor);
    }
  }
}

bool LayerModel::Layers(const TokenSums& sums, LayerCosts* costs) const {
  for (const LayerKind kind : kAllKinds) {
    if (profile_.layers[kind].present && !LayerOfKind(kind, sums, costs)) return false;
  }
  costs->source_embedding = SourceEmbeddingNs(sums);
  costs->target_embedding = TargetEmbeddingNs(sums);
  return true;
}

double LayerModel::PassesNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const {
  const LayerProfile& layer = profile_.layers[kind];
  if (sums.layout == Layout::kPadded && !layer.forward_table_ns.empty()) {
    const GridPoint point = LocateOnGrid(profile_.grid, layer.axes, sums, !layer.has_closed_form);
    const auto forward = Interpolate(layer.forward_table_ns, point);
    if (forward.has_value()) {
      const std::vector<double>& table = layer.backward_table_ns[level];
      const auto backward = table.empty() ? std::nullopt : Interpolate(table, point);
      return (*forward + backward.value_or(*forward * layer.backward_ratio[level])) / table_divisor_[kind];
    }
    LayerCosts costs;
    if (LayerOfKind(kind, sums, &costs)) return costs.forward[kind] + costs.backward[kind][level];
  }
  if (!layer.has_closed_form) return std::numeric_limits<double>::infinity();
  const double forward = FormNs(kind, sums);
  if (!layer.backward_forms.has_value()) return forward + forward * layer.backward_ratio[level];
  return forward + AtLevel(kind, level, PartsOfBackward(kind, sums), forward);
}

double LayerModel::WeightTokenNs() const {
  constexpr double kMany = std::numeric_limits<double>::infinity();
  const LayerProfile& layer = profile_.layers[kDecoder];
  if (layer.backward_forms.has_value()) {
    const LayerTime& weight = layer.backward_forms->weight;
    return weight.target_token_ns * weight.TokenFactor(kMany) / table_divisor_[kDecoder];
  }
  const LayerTime& form = form_[kDecoder];
  return form.target_token_ns * form.TokenFactor(kMany) / form_divisor_[kDecoder] *
         layer.backward_ratio[kKeepAll] * (1 - layer.backward_input_share);
}

double LayerModel::AttentionNs(double squares, double tokens) const {
  if (tokens <= 0) return 0;
  const LayerTime& form = form_[kDecoder];
  return form.target_square_ns * squares * (1 + form.half_efficiency_tokens / tokens) /
         form_divisor_[kDecoder];
}

}  // namespace penstock::core
