#include <string>

#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// What OLMo 2 and 3 have, in the same fields.
absl::StatusOr<Json> LikeAnOlmo(const v1::ModelSpec& model, const std::string& family,
                                const std::string& architecture, FamilyParts has) {
  if (model.norm_placement() != v1::NORM_PLACEMENT_AFTER || !model.joint_head_norms())
    return NotInFamily(family, "norm_placement and joint_head_norms", "not AFTER with norms over all heads");
  if (HasAllBiases(model.feed_forward_biases()) || model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return NotInFamily(family, "feed_forward_biases and attention_biases", "other layers have a bias");
  has.norms_behind = true;
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, family, architecture, has));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  return config;
}

}  // namespace

absl::StatusOr<Json> Olmo2Config(const v1::ModelSpec& model) {
  return LikeAnOlmo(model, kOlmo2, "Olmo2ForCausalLM", {});
}

absl::StatusOr<Json> Olmo3Config(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeAnOlmo(model, kOlmo3, "Olmo3ForCausalLM",
                                       {.window = true, .windowless_layers = true, .window_theta = true}));
  const Json full = config["rope_parameters"];
  const double theta =
      model.window_rotary_theta() > 0 ? model.window_rotary_theta() : full["rope_theta"].get<double>();
  if (model.window_rotary_theta() == 0 && model.rotary().scaling() != v1::ROTARY_SCALING_UNSPECIFIED)
    return NotInFamily(kOlmo3, "window_rotary_theta", "layers with a window turn with a scaling");
  config["sliding_window"] = WindowOrNull(model);
  config["layer_types"] = LayerTypes(model);
  // Their names before transformers 5 stand for other models.
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"full_attention", full},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", theta}}}};
  return config;
}

absl::StatusOr<Json> OlmoeConfig(const v1::ModelSpec& model) {
  if (AttentionInner(model) != model.hidden())
    return NotInFamily(kOlmoe, "attention_inner", "differs from hidden");
  if (model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return NotInFamily(kOlmoe, "attention_biases", "queries, keys and values alone have one");
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeALlama(model, kOlmoe, "OlmoeForCausalLM", {.experts = true, .clip = true}));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["clip_qkv"] = model.query_key_value_clip() > 0 ? Json(model.query_key_value_clip()) : Json();
  AddExperts(model, config);
  return config;
}

}  // namespace penstock::cli
