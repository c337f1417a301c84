#include "planner/core/calibrate/forward_parts.h"

#include <utility>

namespace penstock::core {
namespace {

LayerTime TermOf(const LayerTime& time, ForwardTerm term) {
  LayerTime result;
  result.half_efficiency_tokens = time.half_efficiency_tokens;
  if (term == ForwardTerm::kFixed) {
    result.fixed_ns = time.fixed_ns;
    result.packed_row_ns = time.packed_row_ns;
    result.divided_row_ns = time.divided_row_ns;
  }
  if (term == ForwardTerm::kTokens) {
    result.target_token_ns = time.target_token_ns;
    result.source_token_ns = time.source_token_ns;
    result.efficiency = time.efficiency;
  }
  if (term == ForwardTerm::kSquares) {
    result.target_square_ns = time.target_square_ns;
    result.cross_ns = time.cross_ns;
    result.source_square_ns = time.source_square_ns;
    result.target_call_square_ns = time.target_call_square_ns;
    result.source_call_square_ns = time.source_call_square_ns;
  }
  return result;
}

bool HasTables(const LayerProfile& layer) {
  bool tables = !layer.forward_table_ns.empty();
  for (const std::vector<double>& table : layer.backward_table_ns) tables = tables || !table.empty();
  return tables;
}

bool IsZero(const LayerTime& time) {
  return time.fixed_ns == 0 && time.target_token_ns == 0 && time.source_token_ns == 0 &&
         time.target_square_ns == 0 && time.cross_ns == 0 && time.source_square_ns == 0 &&
         time.packed_row_ns == 0 && time.target_call_square_ns == 0 && time.source_call_square_ns == 0 &&
         time.divided_row_ns == 0;
}

}  // namespace

ForwardParts::ForwardParts(const CostModel& costs) : costs_(costs) {
  for (const LayerKind kind : kAllKinds) {
    const LayerProfile& layer = costs.profile().layers[kind];
    if (!layer.present) continue;
    if (HasTables(layer) || !layer.has_closed_form) {
      parts_.push_back({kind, ForwardTerm::kWhole});
      terms_.push_back(nullptr);
    } else {
      AddTerms(kind);
    }
  }
}

void ForwardParts::AddTerms(LayerKind kind) {
  for (const ForwardTerm term : {ForwardTerm::kFixed, ForwardTerm::kTokens, ForwardTerm::kSquares}) {
    auto alone = std::make_unique<Term>();
    alone->profile = costs_.profile();
    LayerProfile& layer = alone->profile.layers[kind];
    layer.forward = TermOf(layer.forward, term);
    bool zero = IsZero(layer.forward);
    if (layer.backward_forms.has_value()) {
      for (LayerTime* time : {&layer.backward_forms->input, &layer.backward_forms->weight}) {
        *time = TermOf(*time, term);
        zero = zero && IsZero(*time);
      }
    }
    for (TensorCost& cost : layer.tensor) {
      cost.forward = TermOf(cost.forward, term);
      zero = zero && IsZero(cost.forward);
    }
    if (zero) continue;
    alone->model = std::make_unique<LayerModel>(alone->profile, costs_.group());
    parts_.push_back({kind, term});
    terms_.push_back(std::move(alone));
  }
}

std::vector<double> ForwardParts::Of(int stage, const TokenSums& sums) const {
  LayerCosts whole;
  if (!costs_.layer_model().Layers(sums, &whole)) return {};
  const Stage& layers = costs_.stage(stage);
  std::vector<double> values;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const LayerKind kind = parts_[i].kind;
    LayerCosts of_term = whole;
    if (terms_[i] != nullptr) terms_[i]->model->Layers(sums, &of_term);
    values.push_back(layers.count(kind) * of_term.forward[kind]);
  }
  values.push_back((layers.embeds_source ? whole.source_embedding : 0) +
                   (layers.embeds_target ? whole.target_embedding : 0));
  return values;
}

ForwardParts::Backward ForwardParts::BackwardOf(size_t part, const TokenSums& sums) const {
  LayerCosts of_term;
  if (!has_backward(part) || !terms_[part]->model->Layers(sums, &of_term)) return {};
  const LayerKind kind = parts_[part].kind;
  return {.whole_ns = of_term.backward[kind][kKeepAll], .weight_ns = of_term.weight[kind]};
}

}  // namespace penstock::core
