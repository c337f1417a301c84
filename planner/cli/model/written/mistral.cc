#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> MistralConfig(const v1::ModelSpec& model) {
  if (model.attention_biases() != v1::BIASES_NONE || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kMistral, "attention_biases and feed_forward_biases", "linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kMistral, "MistralForCausalLM", {.window = true}));
  config["sliding_window"] = WindowOrNull(model);
  return config;
}

absl::StatusOr<Json> MinistralConfig(const v1::ModelSpec& model) {
  if (model.attention_biases() != v1::BIASES_NONE || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kMinistral, "attention_biases and feed_forward_biases", "linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kMinistral, "MinistralForCausalLM",
                                                    {.window = true, .windowless_layers = true}));
  config["sliding_window"] = WindowOrNull(model);
  config["layer_types"] = LayerTypes(model);
  return config;
}

absl::StatusOr<Json> MixtralConfig(const v1::ModelSpec& model) {
  if (model.attention_biases() != v1::BIASES_NONE)
    return NotInFamily(kMixtral, "attention_biases", "its linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(
      Json config, LikeALlama(model, kMixtral, "MixtralForCausalLM", {.window = true, .experts = true}));
  config["num_local_experts"] = model.experts();
  config["num_experts_per_tok"] = model.experts_per_token();
  config["sliding_window"] = WindowOrNull(model);
  return config;
}

}  // namespace penstock::cli
