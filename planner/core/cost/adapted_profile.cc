#include "planner/core/cost/adapted_profile.h"

#include <set>
#include <string>

#include "common/status/status_macros.h"
#include "planner/core/contract/adapters.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

double AlphaOrRank(const v1::Adapters& adapters) {
  return adapters.alpha() != 0 ? adapters.alpha() : adapters.rank();
}

// Of a kind of layer, in units of its forward pass without adapters.
struct Change {
  // What the adapters add to it.
  double phi = 0;
  // What its backward pass took for gradients of weights.
  double weights = 0;

  double Forward(double ns) const { return ns * (1 + phi); }
  // `products`: of the adapters, in the backward pass.
  double Ratio(double ratio, int products) const { return (ratio - weights + products * phi) / (1 + phi); }
  double Backward(double backward, double forward, int products) const {
    return backward + (products * phi - weights) * forward;
  }
};

constexpr int kProducts = 3;
// With what runs again.
constexpr int kProductsOfFull = 4;

void AdaptForm(const Change& change, v1::LayerTime* time) {
  time->set_target_token_ns(change.Forward(time->target_token_ns()));
  time->set_source_token_ns(change.Forward(time->source_token_ns()));
}

// Adapters have a product for the gradient of their input, and two for their own gradients; the layer's own
// weights have none.
void AdaptBackwardForms(const Change& change, v1::LayerCost* layer) {
  const v1::LayerTime& forward = layer->forward();
  v1::LayerTime* const input = layer->mutable_backward_input();
  input->set_target_token_ns(input->target_token_ns() + change.phi * forward.target_token_ns());
  input->set_source_token_ns(input->source_token_ns() + change.phi * forward.source_token_ns());
  v1::LayerTime weight;
  weight.set_target_token_ns((kProducts - 1) * change.phi * forward.target_token_ns());
  weight.set_source_token_ns((kProducts - 1) * change.phi * forward.source_token_ns());
  weight.set_half_efficiency_tokens(forward.half_efficiency_tokens());
  *weight.mutable_efficiency() = forward.efficiency();
  *layer->mutable_backward_weight() = weight;
}

void AdaptBackwardTable(const Change& change, const v1::Table& forward, int products, v1::Table* table) {
  for (int i = 0; i < table->values_size(); ++i)
    table->set_values(i, change.Backward(table->values(i), forward.values(i), products));
}

void AdaptTables(const Change& change, v1::LayerCost* layer) {
  const v1::Table& forward = layer->forward_ms();
  if (layer->has_backward_none_ms())
    AdaptBackwardTable(change, forward, kProducts, layer->mutable_backward_none_ms());
  if (layer->has_backward_selective_ms())
    AdaptBackwardTable(change, forward, kProducts, layer->mutable_backward_selective_ms());
  if (layer->has_backward_full_ms())
    AdaptBackwardTable(change, forward, kProductsOfFull, layer->mutable_backward_full_ms());
  if (!layer->has_forward_ms()) return;
  for (double& value : *layer->mutable_forward_ms()->mutable_values()) value = change.Forward(value);
}

void AdaptLayer(const v1::ModelSpec& model, bool cross, v1::LayerCost* layer) {
  const double ratio = layer->backward_ratio_none();
  const Change change = {.phi = static_cast<double>(AdapterElements(model, cross, /*tensors=*/1)) /
                                static_cast<double>(LinearElements(model, cross)),
                         .weights = ratio * (1 - layer->backward_input_share())};
  AdaptTables(change, layer);
  if (layer->has_backward_input()) AdaptBackwardForms(change, layer);
  if (layer->has_forward()) AdaptForm(change, layer->mutable_forward());
  for (v1::TensorCost& tensor : *layer->mutable_tensor())
    if (tensor.has_forward()) AdaptForm(change, tensor.mutable_forward());
  layer->set_backward_input_share((ratio - change.weights + change.phi) /
                                  (ratio - change.weights + kProducts * change.phi));
  layer->set_backward_ratio_none(change.Ratio(ratio, kProducts));
  if (layer->backward_ratio_selective() != 0)
    layer->set_backward_ratio_selective(change.Ratio(layer->backward_ratio_selective(), kProducts));
  if (layer->backward_ratio_full() != 0)
    layer->set_backward_ratio_full(change.Ratio(layer->backward_ratio_full(), kProductsOfFull));
}

void Halve(v1::Table* table) {
  for (double& value : *table->mutable_values()) value /= 2;
}

// Its weight has no gradient, which is half of its products backward.
void AdaptHead(v1::LayerCost* head) {
  head->set_backward_ratio_none(head->backward_ratio_none() / 2);
  head->set_backward_ratio_selective(head->backward_ratio_selective() / 2);
  head->set_backward_ratio_full(head->backward_ratio_full() / 2);
  if (head->has_backward_none_ms()) Halve(head->mutable_backward_none_ms());
  if (head->has_backward_selective_ms()) Halve(head->mutable_backward_selective_ms());
  if (head->has_backward_full_ms()) Halve(head->mutable_backward_full_ms());
}

// Its time is the mean of both passes, of which the backward pass has nothing to do.
void AdaptEmbedding(v1::LayerTime* time) {
  time->set_fixed_ns(time->fixed_ns() / 2);
  time->set_target_token_ns(time->target_token_ns() / 2);
  time->set_target_square_ns(time->target_square_ns() / 2);
  time->set_source_token_ns(time->source_token_ns() / 2);
  time->set_source_square_ns(time->source_square_ns() / 2);
}

}  // namespace

bool AreSame(const v1::Adapters& left, const v1::Adapters& right) {
  return left.rank() == right.rank() && AlphaOrRank(left) == AlphaOrRank(right) &&
         left.rank_stabilised() == right.rank_stabilised() &&
         std::set<int>(left.targets().begin(), left.targets().end()) ==
             std::set<int>(right.targets().begin(), right.targets().end());
}

absl::Status AdaptProfile(const v1::Adapters& adapters, v1::ProfileFile* file) {
  v1::ModelSpec& model = *file->mutable_model();
  if (model.has_adapters()) {
    if (AreSame(model.adapters(), adapters)) return absl::OkStatus();
    return Wrong("profile", "its model has other adapters; give those, or the profile of the model without");
  }
  *model.mutable_adapters() = adapters;
  PENSTOCK_RETURN_IF_ERROR(CheckAdapters(model));
  for (v1::LayerCost& layer : *file->mutable_profile()->mutable_layers()) {
    if (layer.name() == "head") {
      AdaptHead(&layer);
    } else {
      AdaptLayer(model, /*cross=*/layer.name() == "decoder", &layer);
    }
  }
  if (file->profile().has_embedding_forward())
    AdaptEmbedding(file->mutable_profile()->mutable_embedding_forward());
  return absl::OkStatus();
}

}  // namespace penstock::core
