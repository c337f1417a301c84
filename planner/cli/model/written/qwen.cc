#include <string>

#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of a Qwen3 with experts or without: what both have, in the same fields.
absl::StatusOr<Json> LikeAQwen3(const v1::ModelSpec& model, const std::string& family,
                                const std::string& architecture, FamilyParts has) {
  if (model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return NotInFamily(family, "attention_biases", "queries, keys and values alone have one");
  has.window = has.head_norms = true;
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, family, architecture, has));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  AddQwenWindows(model, config);
  return config;
}

void AddQwenExperts(const v1::ModelSpec& model, Json& config) {
  config["moe_intermediate_size"] = model.ffn();
  if (model.dense_ffn() > 0) config["intermediate_size"] = model.dense_ffn();
  AddExperts(model, config);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
  for (const uint32_t layer : model.dense_layers()) config["mlp_only_layers"].push_back(layer - 1);
}

}  // namespace

absl::StatusOr<Json> Qwen2Config(const v1::ModelSpec& model) {
  if (HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kQwen2, "feed_forward_biases", "its linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kQwen2, "Qwen2ForCausalLM",
                                                    {.window = true, .windowless_layers = true}));
  AddQwenWindows(model, config);
  return config;
}

absl::StatusOr<Json> Qwen3Config(const v1::ModelSpec& model) {
  if (HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kQwen3, "feed_forward_biases", "its linear layers have a bias");
  return LikeAQwen3(model, kQwen3, "Qwen3ForCausalLM", {.windowless_layers = true});
}

absl::StatusOr<Json> Qwen2MoeConfig(const v1::ModelSpec& model) {
  if (model.shared_expert_ffn() == 0 || !model.gated_shared_expert())
    return NotInFamily(kQwen2Moe, "gated_shared_expert", "no expert is shared and gated");
  if (HasAllBiases(model.attention_biases()))
    return NotInFamily(kQwen2Moe, "attention_biases", "other layers than queries, keys and values have one");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kQwen2Moe, "Qwen2MoeForCausalLM",
                                                    {.window = true,
                                                     .windowless_layers = true,
                                                     .experts = true,
                                                     .dense_layers = true,
                                                     .shared_expert = true}));
  config["qkv_bias"] = model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE;
  config["shared_expert_intermediate_size"] = model.shared_expert_ffn();
  config["use_sliding_window"] = model.attention_window() > 0;
  if (model.attention_window() > 0) config["sliding_window"] = model.attention_window();
  config["layer_types"] = LayerTypes(model);
  AddQwenExperts(model, config);
  return config;
}

absl::StatusOr<Json> Qwen3MoeConfig(const v1::ModelSpec& model) {
  if (!model.head_norms()) return NotInFamily(kQwen3Moe, "head_norms", "queries and keys are not normalised");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeAQwen3(model, kQwen3Moe, "Qwen3MoeForCausalLM",
                                                    {.experts = true, .dense_layers = true}));
  // Its class has no list of layers: all have the window.
  config.erase("layer_types");
  AddQwenExperts(model, config);
  return config;
}

}  // namespace penstock::cli
