#include <cmath>
#include <cstdint>
#include <string>

#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of all Gemmas.
absl::Status CheckMultipliers(const v1::ModelSpec& model, const std::string& family) {
  const v1::Multipliers& multipliers = model.multipliers();
  const double embedding = std::sqrt(static_cast<double>(model.hidden()));
  if (multipliers.embedding() == embedding && multipliers.residual() == 0 && multipliers.logits() == 0)
    return absl::OkStatus();
  return NotInFamily(family, "multipliers", "there are others than the root of hidden for embeddings");
}

absl::Status CheckBiases(const v1::ModelSpec& model, const std::string& family) {
  if (!HasAllBiases(model.feed_forward_biases()) && model.attention_biases() != v1::BIASES_QUERY_KEY_VALUE)
    return absl::OkStatus();
  return NotInFamily(family, "feed_forward_biases and attention_biases", "other layers have a bias");
}

// What Gemma 2 and 3 have, in the same fields.
absl::StatusOr<Json> LikeAGemma(const v1::ModelSpec& model, const std::string& family,
                                const std::string& architecture, FamilyParts has) {
  has.multipliers = has.window = has.windowless_layers = has.logit_cap = true;
  has.norms_behind = has.offset_norms = true;
  has.feed_forward = v1::FEED_FORWARD_GATED_GELU;
  if (model.norm_placement() != v1::NORM_PLACEMENT_BOTH)
    return NotInFamily(family, "norm_placement", "not BOTH");
  PENSTOCK_RETURN_IF_ERROR(CheckBiases(model, family));
  PENSTOCK_RETURN_IF_ERROR(CheckMultipliers(model, family));
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, family, architecture, has));
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  const double scale = model.multipliers().attention();
  const double scalar = scale > 0 ? 1 / (scale * scale) : HeadWidth(model);
  // transformers wants a whole number, which it is but for rounding.
  const double whole = std::round(scalar);
  if (std::abs(scalar - whole) > 1e-6 * whole)
    return NotInFamily(family, "multipliers.attention", "it is no root of a whole number's inverse");
  config["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
  config["sliding_window"] = WindowOrNull(model);
  config["layer_types"] = LayerTypes(model);
  config["final_logit_softcapping"] = model.logit_cap() > 0 ? Json(model.logit_cap()) : Json();
  return config;
}

}  // namespace

absl::StatusOr<Json> GemmaConfig(const v1::ModelSpec& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckBiases(model, kGemma));
  PENSTOCK_RETURN_IF_ERROR(CheckMultipliers(model, kGemma));
  if (model.multipliers().attention() > 0)
    return NotInFamily(kGemma, "multipliers.attention", "scores have another factor");
  PENSTOCK_ASSIGN_OR_RETURN(
      Json config,
      LikeALlama(model, kGemma, "GemmaForCausalLM",
                 {.multipliers = true, .feed_forward = v1::FEED_FORWARD_GATED_GELU, .offset_norms = true}));
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  return config;
}

absl::StatusOr<Json> Gemma2Config(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeAGemma(model, kGemma2, "Gemma2ForCausalLM", {.score_cap = true}));
  config["attn_logit_softcapping"] = model.score_cap() > 0 ? Json(model.score_cap()) : Json();
  return config;
}

absl::StatusOr<Json> Gemma3Config(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeAGemma(model, kGemma3, "Gemma3ForCausalLM",
                                                    {.window_theta = true, .head_norms = true}));
  const double theta = model.window_rotary_theta() > 0 ? model.window_rotary_theta()
                                                       : static_cast<double>(config["rope_theta"]);
  const Json full = config["rope_parameters"];
  config["rope_local_base_freq"] = theta;
  config["rope_parameters"] = {{"full_attention", full},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", theta}}}};
  return config;
}

}  // namespace penstock::cli
