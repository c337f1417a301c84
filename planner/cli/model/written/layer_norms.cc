// StableLM and Starcoder 2: families with layer norms where a Llama has RMS norms.
#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Under the name that the family has for it.
void RenameEpsilon(const char* name, Json& config) {
  config[name] = config["rms_norm_eps"];
  config.erase("rms_norm_eps");
}

}  // namespace

absl::StatusOr<Json> StableLmConfig(const v1::ModelSpec& model) {
  if (HasAllBiases(model.attention_biases()) || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kStableLm, "attention_biases and feed_forward_biases", "other layers have a bias");
  if (AttentionInner(model) != model.hidden())
    return NotInFamily(kStableLm, "attention_inner", "differs from hidden");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kStableLm, "StableLmForCausalLM",
                                                    {.part_of_heads_turns = true, .norm = v1::NORM_LAYER}));
  RenameEpsilon("layer_norm_eps", config);
  config.erase("head_dim");
  config["use_qkv_bias"] = model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE;
  const uint32_t width = model.rotary().width() > 0 ? model.rotary().width() : HeadWidth(model);
  config["partial_rotary_factor"] = static_cast<double>(width) / HeadWidth(model);
  config["rope_parameters"]["partial_rotary_factor"] = config["partial_rotary_factor"];
  return config;
}

absl::StatusOr<Json> Starcoder2Config(const v1::ModelSpec& model) {
  if (HasAllBiases(model.attention_biases()) != HasAllBiases(model.feed_forward_biases()) ||
      model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return NotInFamily(kStarcoder2, "attention_biases and feed_forward_biases", "not all or none has a bias");
  PENSTOCK_ASSIGN_OR_RETURN(
      Json config,
      LikeALlama(model, kStarcoder2, "Starcoder2ForCausalLM",
                 {.window = true, .feed_forward = v1::FEED_FORWARD_GELU, .norm = v1::NORM_LAYER}));
  RenameEpsilon("norm_epsilon", config);
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["use_bias"] = HasAllBiases(model.attention_biases());
  config["sliding_window"] = WindowOrNull(model);
  return config;
}

}  // namespace penstock::cli
