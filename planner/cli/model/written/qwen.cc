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

absl::StatusOr<Json> Qwen3MoeConfig(const v1::ModelSpec& model) {
  if (!model.head_norms()) return NotInFamily(kQwen3Moe, "head_norms", "queries and keys are not normalised");
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeAQwen3(model, kQwen3Moe, "Qwen3MoeForCausalLM", {.experts = true}));
  // Its class has no list of layers: all have the window.
  config.erase("layer_types");
  config["moe_intermediate_size"] = model.ffn();
  config["num_experts"] = model.experts();
  config["num_experts_per_tok"] = model.experts_per_token();
  config["norm_topk_prob"] = model.normalised_experts();
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
  return config;
}

}  // namespace penstock::cli
