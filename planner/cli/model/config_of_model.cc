#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

absl::Status NotInFamily(absl::string_view family, absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("model.", field, ": ", why, ", which no ", family, " of Hugging Face has"));
}

bool IsT5(const v1::ModelSpec& model) { return model.architecture() == v1::ARCHITECTURE_T5; }

uint32_t AttentionInner(const v1::ModelSpec& model) {
  return model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
}

uint32_t HeadWidth(const v1::ModelSpec& model) { return AttentionInner(model) / model.heads(); }

double EpsilonOf(const v1::ModelSpec& model, double usual) {
  return model.norm_epsilon() > 0 ? model.norm_epsilon() : usual;
}

bool HasAllBiases(v1::Biases biases) { return biases == v1::BIASES_UNSPECIFIED || biases == v1::BIASES_ALL; }

// What only some families have; the others refuse it by name.
struct FamilyParts {
  bool multipliers = false;
  bool positionless_layers = false;
  bool window = false;
  bool windowless_layers = false;
  bool window_theta = false;
  bool score_cap = false;
  bool logit_cap = false;
  bool part_of_heads_turns = false;
  bool experts = false;
  bool shared_expert = false;
  bool clip = false;
  bool head_norms = false;
  // And nothing but these.
  bool norms_behind = false;
  bool offset_norms = false;
};

absl::Status CheckParts(const v1::ModelSpec& model, const std::string& family, const FamilyParts& has) {
  if (!has.multipliers && model.has_multipliers()) return NotInFamily(family, "multipliers", "it has some");
  if (!has.positionless_layers && model.positionless_interval() > 0)
    return NotInFamily(family, "positionless_interval", "some layers have no positions");
  if (!has.window && model.attention_window() > 0)
    return NotInFamily(family, "attention_window", "layers have a window");
  if (!has.windowless_layers && model.windowless_interval() > 0)
    return NotInFamily(family, "windowless_interval", "some layers have no window");
  if (!has.window_theta && model.window_rotary_theta() > 0)
    return NotInFamily(family, "window_rotary_theta", "layers with a window turn by another theta");
  if (!has.score_cap && model.score_cap() > 0) return NotInFamily(family, "score_cap", "scores have one");
  if (!has.logit_cap && model.logit_cap() > 0) return NotInFamily(family, "logit_cap", "logits have one");
  if (!has.part_of_heads_turns && model.rotary().width() > 0)
    return NotInFamily(family, "rotary.width", "a part of a head turns alone");
  if (!has.experts && model.experts() > 0)
    return NotInFamily(family, "experts", "its feed-forward parts are not dense");
  if (!has.shared_expert && model.shared_expert_ffn() > 0)
    return NotInFamily(family, "shared_expert_ffn", "all tokens share an expert");
  if (!has.clip && model.query_key_value_clip() > 0)
    return NotInFamily(family, "query_key_value_clip", "queries, keys and values are clipped");
  if (!has.head_norms && model.head_norms())
    return NotInFamily(family, "head_norms", "queries and keys are normalised");
  const bool behind = model.norm_placement() > v1::NORM_PLACEMENT_BEFORE;
  if (has.norms_behind != behind) return NotInFamily(family, "norm_placement", "norms stand elsewhere");
  if (has.offset_norms != model.offset_norms())
    return NotInFamily(family, "offset_norms", "its norms multiply by something else");
  return absl::OkStatus();
}

absl::StatusOr<Json> Gpt2Config(const v1::ModelSpec& model) {
  if (model.norm() == v1::NORM_RMS) return NotInFamily(kGpt2, "norm", "RMS");
  if (!HasAllBiases(model.attention_biases()))
    return NotInFamily(kGpt2, "attention_biases", "not all linear layers have a bias");
  if (!HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kGpt2, "feed_forward_biases", "not all linear layers have a bias");
  if (model.key_value_heads() > 0 && model.key_value_heads() != model.heads())
    return NotInFamily(kGpt2, "key_value_heads", "fewer than heads");
  if (model.joint_head_norms())
    return NotInFamily(kGpt2, "joint_head_norms", "queries and keys are normalised");
  PENSTOCK_RETURN_IF_ERROR(CheckParts(model, kGpt2, {}));
  if (AttentionInner(model) != model.hidden())
    return NotInFamily(kGpt2, "attention_inner", "differs from hidden");
  const bool relu = model.feed_forward() == v1::FEED_FORWARD_RELU;
  const bool gelu =
      model.feed_forward() == v1::FEED_FORWARD_GELU || model.feed_forward() == v1::FEED_FORWARD_UNSPECIFIED;
  if (!relu && !gelu) return NotInFamily(kGpt2, "feed_forward", "it is gated");
  return Json{{"architectures", {"GPT2LMHeadModel"}},
              {"model_type", kGpt2},
              {"vocab_size", model.vocab()},
              {"n_embd", model.hidden()},
              {"n_layer", model.layers()},
              {"n_head", model.heads()},
              {"n_inner", model.ffn()},
              {"n_positions", model.max_sequence_length()},
              {"activation_function", relu ? "relu" : "gelu_new"},
              {"layer_norm_epsilon", EpsilonOf(model, 1e-5)},
              {"tie_word_embeddings", model.tied_head()}};
}

Json ListOfDoubles(const google::protobuf::RepeatedField<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(value);
  return list;
}

void AddYarn(const v1::RotaryPosition& rotary, Json& json) {
  json["rope_type"] = "yarn";
  json["factor"] = rotary.factor();
  json["original_max_position_embeddings"] = rotary.original_max_sequence_length();
  json["beta_fast"] = rotary.beta_fast();
  json["beta_slow"] = rotary.beta_slow();
  json["truncate"] = rotary.truncated();
  json["attention_factor"] = rotary.attention_factor();
}

void AddLongRope(const v1::RotaryPosition& rotary, Json& json) {
  json["rope_type"] = "longrope";
  json["factor"] = rotary.factor();
  json["original_max_position_embeddings"] = rotary.original_max_sequence_length();
  json["attention_factor"] = rotary.attention_factor();
  json["short_factor"] = ListOfDoubles(rotary.short_factors());
  json["long_factor"] = ListOfDoubles(rotary.long_factors());
}

Json RopeParameters(const v1::RotaryPosition& rotary) {
  Json json = {{"rope_type", "default"}, {"rope_theta", rotary.theta() > 0 ? rotary.theta() : 10000.0}};
  if (rotary.scaling() == v1::ROTARY_SCALING_UNSPECIFIED) return json;
  if (rotary.scaling() == v1::ROTARY_SCALING_YARN) AddYarn(rotary, json);
  if (rotary.scaling() == v1::ROTARY_SCALING_LONGROPE) AddLongRope(rotary, json);
  if (json["rope_type"] != "default") return json;
  json["rope_type"] = rotary.scaling() == v1::ROTARY_SCALING_LINEAR ? "linear" : "llama3";
  json["factor"] = rotary.factor();
  if (rotary.scaling() == v1::ROTARY_SCALING_LINEAR) return json;
  json["low_freq_factor"] = rotary.low_frequency_factor();
  json["high_freq_factor"] = rotary.high_frequency_factor();
  json["original_max_position_embeddings"] = rotary.original_max_sequence_length();
  return json;
}

// Of a Llama or Qwen2: what both have, in the same fields.
absl::StatusOr<Json> LikeALlama(const v1::ModelSpec& model, const std::string& family,
                                const std::string& architecture, const FamilyParts& has = {}) {
  if (model.norm() != v1::NORM_RMS) return NotInFamily(family, "norm", "LAYER");
  // Of those that have norms with an offset alone.
  const v1::FeedForward feed_forward =
      has.offset_norms ? v1::FEED_FORWARD_GATED_GELU : v1::FEED_FORWARD_GATED_SILU;
  if (model.feed_forward() != feed_forward)
    return NotInFamily(family, "feed_forward", absl::StrCat("not ", v1::FeedForward_Name(feed_forward)));
  PENSTOCK_RETURN_IF_ERROR(CheckParts(model, family, has));
  const Json rope = RopeParameters(model.rotary());
  Json config = {
      {"architectures", Json::array({architecture})},
      {"model_type", family},
      {"vocab_size", model.vocab()},
      {"hidden_size", model.hidden()},
      {"intermediate_size", model.ffn()},
      {"num_hidden_layers", model.layers()},
      {"num_attention_heads", model.heads()},
      {"num_key_value_heads", model.key_value_heads() > 0 ? model.key_value_heads() : model.heads()},
      {"head_dim", HeadWidth(model)},
      {"max_position_embeddings", model.max_sequence_length()},
      {"hidden_act", "silu"},
      {"rms_norm_eps", EpsilonOf(model, 1e-6)},
      {"tie_word_embeddings", model.tied_head()},
      // For transformers 5, and for those before it.
      {"rope_parameters", rope},
      {"rope_theta", rope["rope_theta"]}};
  if (rope["rope_type"] != "default") config["rope_scaling"] = rope;
  return config;
}

// For each layer; null where all have a window.
Json LayerTypes(const v1::ModelSpec& model) {
  const uint32_t interval = model.windowless_interval();
  Json types = Json::array();
  for (uint32_t i = 1; i <= model.layers(); ++i) {
    const bool windowed = model.attention_window() > 0 && (interval == 0 || i % interval != 0);
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  return types;
}

Json WindowOrNull(const v1::ModelSpec& model) {
  return model.attention_window() > 0 ? Json(model.attention_window()) : Json();
}

void AddQwenWindows(const v1::ModelSpec& model, Json& config) {
  config["use_sliding_window"] = model.attention_window() > 0;
  if (model.attention_window() == 0) return;
  config["sliding_window"] = model.attention_window();
  config["layer_types"] = LayerTypes(model);
}

absl::StatusOr<Json> MistralConfig(const v1::ModelSpec& model) {
  if (model.attention_biases() != v1::BIASES_NONE || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kMistral, "attention_biases and feed_forward_biases", "linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kMistral, "MistralForCausalLM", {.window = true}));
  config["sliding_window"] = WindowOrNull(model);
  return config;
}

absl::StatusOr<Json> Phi3Config(const v1::ModelSpec& model) {
  if (model.attention_biases() != v1::BIASES_NONE || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kPhi3, "attention_biases and feed_forward_biases", "linear layers have a bias");
  if (AttentionInner(model) != model.hidden())
    return NotInFamily(kPhi3, "attention_inner", "differs from hidden");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kPhi3, "Phi3ForCausalLM",
                                                    {.window = true, .part_of_heads_turns = true}));
  config["sliding_window"] = WindowOrNull(model);
  const uint32_t width = model.rotary().width() > 0 ? model.rotary().width() : HeadWidth(model);
  config["partial_rotary_factor"] = static_cast<double>(width) / HeadWidth(model);
  config["rope_parameters"]["partial_rotary_factor"] = config["partial_rotary_factor"];
  if (model.rotary().original_max_sequence_length() > 0)
    config["original_max_position_embeddings"] = model.rotary().original_max_sequence_length();
  return config;
}

// What both Gemmas have, in the same fields.
absl::StatusOr<Json> LikeAGemma(const v1::ModelSpec& model, const std::string& family,
                                const std::string& architecture, FamilyParts has) {
  has.multipliers = has.window = has.windowless_layers = has.logit_cap = true;
  has.norms_behind = has.offset_norms = true;
  if (model.norm_placement() != v1::NORM_PLACEMENT_BOTH)
    return NotInFamily(family, "norm_placement", "not BOTH");
  if (HasAllBiases(model.feed_forward_biases()) || model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return NotInFamily(family, "feed_forward_biases and attention_biases", "other layers have a bias");
  const v1::Multipliers& multipliers = model.multipliers();
  const double embedding = std::sqrt(static_cast<double>(model.hidden()));
  if (multipliers.embedding() != embedding || multipliers.residual() > 0 || multipliers.logits() > 0)
    return NotInFamily(family, "multipliers", "there are others than the root of hidden for embeddings");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, family, architecture, has));
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  const double scale = multipliers.attention();
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

absl::StatusOr<Json> Olmo2Config(const v1::ModelSpec& model) {
  if (model.norm_placement() != v1::NORM_PLACEMENT_AFTER || !model.joint_head_norms())
    return NotInFamily(kOlmo2, "norm_placement and joint_head_norms", "not AFTER with norms over all heads");
  if (HasAllBiases(model.feed_forward_biases()) || model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return NotInFamily(kOlmo2, "feed_forward_biases and attention_biases", "other layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeALlama(model, kOlmo2, "Olmo2ForCausalLM", {.norms_behind = true}));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  return config;
}

absl::StatusOr<Json> LlamaConfig(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kLlama, "LlamaForCausalLM"));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["mlp_bias"] = HasAllBiases(model.feed_forward_biases());
  return config;
}

absl::StatusOr<Json> GraniteConfig(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeALlama(model, kGranite, "GraniteForCausalLM", {.multipliers = true}));
  const v1::Multipliers& multipliers = model.multipliers();
  const auto or_usual = [](double value, double usual) { return value > 0 ? value : usual; };
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["mlp_bias"] = HasAllBiases(model.feed_forward_biases());
  config["embedding_multiplier"] = or_usual(multipliers.embedding(), 1);
  config["residual_multiplier"] = or_usual(multipliers.residual(), 1);
  config["attention_multiplier"] = or_usual(multipliers.attention(), 1 / std::sqrt(HeadWidth(model)));
  config["logits_scaling"] = or_usual(multipliers.logits(), 1);
  return config;
}

absl::StatusOr<Json> SmolLm3Config(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(
      Json config, LikeALlama(model, kSmolLm3, "SmolLM3ForCausalLM",
                              {.positionless_layers = true, .window = true, .windowless_layers = true}));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["mlp_bias"] = HasAllBiases(model.feed_forward_biases());
  config["no_rope_layer_interval"] = model.positionless_interval();
  Json layers = Json::array();
  for (uint32_t i = 1; i <= model.layers(); ++i)
    layers.push_back(i % model.positionless_interval() == 0 ? 0 : 1);
  config["no_rope_layers"] = layers;
  AddQwenWindows(model, config);
  return config;
}

absl::StatusOr<Json> Qwen2Config(const v1::ModelSpec& model) {
  if (HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kQwen2, "feed_forward_biases", "its linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kQwen2, "Qwen2ForCausalLM",
                                                    {.window = true, .windowless_layers = true}));
  AddQwenWindows(model, config);
  return config;
}

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

absl::StatusOr<Json> Qwen3Config(const v1::ModelSpec& model) {
  if (HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kQwen3, "feed_forward_biases", "its linear layers have a bias");
  return LikeAQwen3(model, kQwen3, "Qwen3ForCausalLM", {.windowless_layers = true});
}

// In every layer.
void AddExperts(const v1::ModelSpec& model, Json& config) {
  config["num_experts"] = model.experts();
  config["num_experts_per_tok"] = model.experts_per_token();
  config["norm_topk_prob"] = model.normalised_experts();
}

void AddQwenExperts(const v1::ModelSpec& model, Json& config) {
  config["moe_intermediate_size"] = model.ffn();
  AddExperts(model, config);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
}

absl::StatusOr<Json> Qwen2MoeConfig(const v1::ModelSpec& model) {
  if (model.shared_expert_ffn() == 0 || !model.gated_shared_expert())
    return NotInFamily(kQwen2Moe, "gated_shared_expert", "no expert is shared and gated");
  if (HasAllBiases(model.attention_biases()))
    return NotInFamily(kQwen2Moe, "attention_biases", "other layers than queries, keys and values have one");
  PENSTOCK_ASSIGN_OR_RETURN(
      Json config,
      LikeALlama(model, kQwen2Moe, "Qwen2MoeForCausalLM",
                 {.window = true, .windowless_layers = true, .experts = true, .shared_expert = true}));
  config["qkv_bias"] = model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE;
  config["shared_expert_intermediate_size"] = model.shared_expert_ffn();
  config["use_sliding_window"] = model.attention_window() > 0;
  if (model.attention_window() > 0) config["sliding_window"] = model.attention_window();
  config["layer_types"] = LayerTypes(model);
  AddQwenExperts(model, config);
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

absl::StatusOr<Json> Qwen3MoeConfig(const v1::ModelSpec& model) {
  if (!model.head_norms()) return NotInFamily(kQwen3Moe, "head_norms", "queries and keys are not normalised");
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeAQwen3(model, kQwen3Moe, "Qwen3MoeForCausalLM", {.experts = true}));
  // Its class has no list of layers: all have the window.
  config.erase("layer_types");
  AddQwenExperts(model, config);
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

absl::StatusOr<std::string> T5FeedForward(v1::FeedForward feed_forward) {
  switch (feed_forward) {
    case v1::FEED_FORWARD_UNSPECIFIED:
    case v1::FEED_FORWARD_RELU:
      return "relu";
    case v1::FEED_FORWARD_GATED_GELU:
      return "gated-gelu";
    case v1::FEED_FORWARD_GATED_SILU:
      return "gated-silu";
    default:
      return NotInFamily(kT5, "feed_forward", "GELU without a gate");
  }
}

absl::StatusOr<Json> T5Config(const v1::ModelSpec& model) {
  if (model.norm() == v1::NORM_LAYER) return NotInFamily(kT5, "norm", "LAYER");
  if (!model.tied_embeddings())
    return NotInFamily(kT5, "tied_embeddings", "encoder and decoder have embeddings of their own");
  if (model.attention_biases() > v1::BIASES_NONE || model.feed_forward_biases() > v1::BIASES_NONE)
    return NotInFamily(kT5, "attention_biases and feed_forward_biases", "linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string feed_forward, T5FeedForward(model.feed_forward()));
  const auto or_usual = [](uint32_t value, uint32_t usual) { return value > 0 ? value : usual; };
  Json config = {{"architectures", {"T5ForConditionalGeneration"}},
                 {"model_type", kT5},
                 {"vocab_size", model.vocab()},
                 {"d_model", model.hidden()},
                 {"d_kv", HeadWidth(model)},
                 {"d_ff", model.ffn()},
                 {"num_layers", model.encoder_layers()},
                 {"num_decoder_layers", model.decoder_layers()},
                 {"num_heads", model.heads()},
                 {"relative_attention_num_buckets", or_usual(model.relative_position_buckets(), 32)},
                 {"relative_attention_max_distance", or_usual(model.relative_position_max_distance(), 128)},
                 {"layer_norm_epsilon", EpsilonOf(model, 1e-6)},
                 {"feed_forward_proj", feed_forward},
                 {"is_encoder_decoder", true},
                 {"decoder_start_token_id", model.decoder_start_token()},
                 {"pad_token_id", model.decoder_start_token()},
                 {"tie_word_embeddings", model.tied_head()}};
  if (model.unscaled_head()) config["scale_decoder_outputs"] = false;
  return config;
}

absl::StatusOr<Json> ConfigOfFamily(const v1::ModelSpec& model) {
  const std::string family = FamilyOf(model);
  if (family == kT5) return T5Config(model);
  if (family == kGranite) return GraniteConfig(model);
  if (family == kSmolLm3) return SmolLm3Config(model);
  if (family == kGemma2) return Gemma2Config(model);
  if (family == kGemma3) return Gemma3Config(model);
  if (family == kMistral) return MistralConfig(model);
  if (family == kOlmo2) return Olmo2Config(model);
  if (family == kOlmoe) return OlmoeConfig(model);
  if (family == kPhi3) return Phi3Config(model);
  if (family == kQwen2) return Qwen2Config(model);
  if (family == kQwen2Moe) return Qwen2MoeConfig(model);
  if (family == kQwen3) return Qwen3Config(model);
  if (family == kQwen3Moe) return Qwen3MoeConfig(model);
  if (family == kMixtral) return MixtralConfig(model);
  return family == kLlama ? LlamaConfig(model) : Gpt2Config(model);
}

}  // namespace

const char* DataTypeName(v1::DataType type) {
  if (type == v1::DATA_TYPE_BFLOAT16) return "bfloat16";
  return type == v1::DATA_TYPE_FLOAT64 ? "float64" : "float32";
}

std::string FamilyOf(const v1::ModelSpec& model) {
  if (IsT5(model)) return kT5;
  if (model.position() != v1::POSITION_ROTARY) return kGpt2;
  if (model.norm_placement() == v1::NORM_PLACEMENT_AFTER) return kOlmo2;
  if (model.joint_head_norms()) return model.experts() > 0 ? kOlmoe : kOlmo2;
  if (model.norm_placement() == v1::NORM_PLACEMENT_BOTH) return model.head_norms() ? kGemma3 : kGemma2;
  if (model.has_multipliers()) return kGranite;
  if (model.positionless_interval() > 0) return kSmolLm3;
  if (model.shared_expert_ffn() > 0) return kQwen2Moe;
  if (model.experts() > 0) return model.head_norms() || !model.normalised_experts() ? kQwen3Moe : kMixtral;
  if (model.head_norms()) return kQwen3;
  if (model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE) return kQwen2;
  if (model.rotary().width() > 0) return kPhi3;
  if (model.windowless_interval() > 0) return kQwen2;
  return model.attention_window() > 0 ? kMistral : kLlama;
}

absl::StatusOr<Json> ConfigOfModel(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config, ConfigOfFamily(model));
  // transformers 5 reads the first; older versions the second, and take float32 where it is missing.
  config["dtype"] = config["torch_dtype"] = DataTypeName(model.dtype());
  return config;
}

}  // namespace penstock::cli
