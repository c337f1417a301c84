#include "planner/cli/model/config_experts.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"

namespace penstock::cli {
namespace {

// transformers adds a load-balancing loss where `output_router_logits` is set: the coefficient times experts
// times the sum over experts of f * P, with f (which sums to the experts of a token) and P as means over all
// layers that have routers and the whole batch. Penstock's are sums over layers of each sample's, with f that
// sums to 1: of a router whose layers and samples are alike both are the same with this weight
// (docs/experts.md).
void ReadBalanceLoss(ConfigFields& fields, v1::ModelSpec& model) {
  if (!fields.Flag("output_router_logits", false)) return fields.MeansNothing({"router_aux_loss_coef"});
  const double coefficient = fields.Number("router_aux_loss_coef");
  const auto dense = static_cast<uint32_t>(model.dense_layers_size());
  if (model.layers() <= dense) return;
  model.set_router_balance_loss(coefficient * model.experts_per_token() / (model.layers() - dense));
}

// Layers that are named, from 0. transformers takes no notice of those that the model has not.
std::set<uint32_t> NamedDenseLayers(ConfigFields& fields) {
  constexpr char kField[] = "mlp_only_layers";
  std::set<uint32_t> layers;
  for (const nlohmann::json& layer : fields.List(kField)) {
    if (layer.is_number_integer() && layer.get<int64_t>() >= 0) {
      layers.insert(layer.get<uint32_t>());
    } else {
      fields.Refuse(kField, absl::StrCat(layer.dump(), " among them; must be numbers of layers, from 0"));
    }
  }
  return layers;
}

// Of every so many layers the last has experts, unless it is named.
void ReadDenseLayers(ConfigFields& fields, v1::ModelSpec& model) {
  const std::set<uint32_t> named = NamedDenseLayers(fields);
  const uint32_t step = fields.Count("decoder_sparse_step", 1);
  for (uint32_t layer = 0; layer < model.layers() && step > 0; ++layer)
    if (named.contains(layer) || (layer + 1) % step != 0) model.add_dense_layers(layer + 1);
  if (static_cast<uint32_t>(model.dense_layers_size()) == model.layers())
    fields.Refuse("decoder_sparse_step",
                  "and mlp_only_layers leave no layer with experts; import it as the family without");
}

}  // namespace

void ReadExperts(ConfigFields& fields, v1::ModelSpec& model) {
  // transformers 5.23 writes one name for all families; those before it a Qwen's as the other.
  const uint32_t qwen = fields.Has("num_experts") ? fields.Count("num_experts") : 0;
  model.set_experts(qwen > 0 ? qwen : fields.Count("num_local_experts"));
  model.set_experts_per_token(fields.Count("num_experts_per_tok"));
  ReadBalanceLoss(fields, model);
}

void ReadQwenExperts(ConfigFields& fields, v1::ModelSpec& model) {
  const uint32_t dense_ffn = model.ffn();
  model.set_ffn(fields.Count("moe_intermediate_size"));
  ReadDenseLayers(fields, model);
  // Where every layer has experts it means nothing.
  if (model.dense_layers_size() > 0 && dense_ffn != model.ffn()) model.set_dense_ffn(dense_ffn);
  ReadExperts(fields, model);
  model.set_normalised_experts(fields.Flag("norm_topk_prob", false));
}

}  // namespace penstock::cli
