#include "planner/cli/model/config_families.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace penstock::cli {
namespace {

// Defaults are those of the configuration classes of transformers 5.
constexpr double kRotaryTheta = 10000;
constexpr uint32_t kWindow = 4096;

struct Scaling {
  v1::RotaryScaling scaling = v1::ROTARY_SCALING_UNSPECIFIED;
  bool known = true;
};

Scaling ScalingOf(const std::string& type) {
  if (type == "default") return {};
  if (type == "linear") return {v1::ROTARY_SCALING_LINEAR};
  if (type == "llama3") return {v1::ROTARY_SCALING_LLAMA3};
  return {.known = false};
}

// `rope_parameters` of transformers 5, `rope_scaling` before it.
void ReadScaling(const std::string& field, const nlohmann::json& object, double theta, ConfigFields& fields,
                 v1::RotaryPosition& rotary) {
  ConfigFields parts("", object);
  // An old name of the same.
  const std::string old_type = parts.Text("type", "default");
  const std::string type = parts.Text("rope_type", old_type);
  const Scaling scaling = ScalingOf(type);
  if (!scaling.known)
    fields.Refuse(field, absl::StrCat("rope_type: '", type, "'; known are default, linear and llama3"));
  rotary.set_theta(parts.Number("rope_theta", theta));
  rotary.set_scaling(scaling.scaling);
  if (scaling.scaling != v1::ROTARY_SCALING_UNSPECIFIED) rotary.set_factor(parts.Number("factor"));
  if (scaling.scaling == v1::ROTARY_SCALING_LLAMA3) {
    rotary.set_low_frequency_factor(parts.Number("low_freq_factor"));
    rotary.set_high_frequency_factor(parts.Number("high_freq_factor"));
    rotary.set_original_max_sequence_length(parts.Count("original_max_position_embeddings"));
  }
  parts.Require("partial_rotary_factor", 1.0);
  const absl::Status status = parts.Finish();
  if (!status.ok()) fields.Refuse(field, std::string(status.message()));
}

void ReadRotary(ConfigFields& fields, v1::RotaryPosition& rotary) {
  const double theta = fields.Number("rope_theta", kRotaryTheta);
  rotary.set_theta(theta);
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* const object = fields.Object(field);
    if (object != nullptr) ReadScaling(field, *object, theta, fields, rotary);
  }
}

v1::Biases AllOrNone(bool all) { return all ? v1::BIASES_ALL : v1::BIASES_NONE; }

// What Llama and those that came after it have in common.
void SetLlamaParts(v1::ModelSpec& model) {
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_position(v1::POSITION_ROTARY);
  model.set_norm(v1::NORM_RMS);
  model.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
}

// The fields of a Llama without those of its biases. Sizes have no defaults here: those of transformers'
// classes differ from family to family and version to version, and transformers always writes them.
void ReadLikeALlama(ConfigFields& fields, v1::ModelSpec& model) {
  SetLlamaParts(model);
  model.set_vocab(fields.Count("vocab_size"));
  model.set_hidden(fields.Count("hidden_size"));
  model.set_ffn(fields.Count("intermediate_size"));
  model.set_layers(fields.Count("num_hidden_layers"));
  model.set_heads(fields.Count("num_attention_heads"));
  model.set_key_value_heads(fields.Count("num_key_value_heads"));
  model.set_attention_inner(model.heads() * fields.Count("head_dim", model.hidden() / model.heads()));
  model.set_max_sequence_length(fields.Count("max_position_embeddings"));
  model.set_norm_epsilon(fields.Number("rms_norm_eps", 1e-6));
  model.set_tied_head(fields.Flag("tie_word_embeddings", false));
  model.set_feed_forward_biases(v1::BIASES_NONE);
  if (!fields.Has("rope_theta") && !fields.Has("rope_parameters")) fields.Refuse("rope_theta", "is missing");
  ReadRotary(fields, *model.mutable_rotary());
  fields.Require("hidden_act", "silu");
}

// null is none, and a missing one that of transformers' classes.
uint32_t ReadWindow(ConfigFields& fields, const v1::ModelSpec& model) {
  const uint32_t none = model.max_sequence_length();
  return fields.Count("sliding_window", fields.Names("sliding_window") ? none : kWindow);
}

// A token sees itself and the window - 1 tokens before it: of sequences up to that length the window hides
// nothing. No layer is windowed here, so that these are all that the model takes.
void LimitToWindow(uint32_t window, v1::ModelSpec& model) {
  model.set_max_sequence_length(std::min(model.max_sequence_length(), window));
}

// Whether any layer has a window, where `layer_types` says it of each.
bool HasWindowedLayers(ConfigFields& fields) {
  bool windowed = false;
  for (const nlohmann::json& type : fields.List("layer_types")) {
    windowed = windowed || type == "sliding_attention";
    if (type != "full_attention" && type != "sliding_attention")
      fields.Refuse("layer_types", absl::StrCat("has ", type.dump(),
                                                "; known are \"full_attention\" and \"sliding_attention\""));
  }
  return windowed;
}

// The windows of a Qwen: none where they are not used.
void ReadQwenWindow(ConfigFields& fields, v1::ModelSpec& model) {
  const bool used = fields.Flag("use_sliding_window", false);
  const uint32_t window = ReadWindow(fields, model);
  // The first layer that has a window, where `layer_types` does not say which have.
  const double first = fields.Number("max_window_layers", 28);
  const bool windowed = fields.Has("layer_types") ? HasWindowedLayers(fields) : first < model.layers();
  if (used && windowed) LimitToWindow(window, model);
  if (!used) fields.RequireAll("layer_types", "full_attention");
}

// What all models with experts have. That transformers adds the load-balancing loss is an option of its own
// (output_router_logits), which mixes all layers.
void ReadExperts(ConfigFields& fields, v1::ModelSpec& model) {
  // transformers 5.23 writes one name for all families; those before it a Qwen's as the other.
  const uint32_t qwen = fields.Has("num_experts") ? fields.Count("num_experts") : 0;
  model.set_experts(qwen > 0 ? qwen : fields.Count("num_local_experts"));
  model.set_experts_per_token(fields.Count("num_experts_per_tok"));
  fields.Require("output_router_logits", false);
  fields.MeansNothing({"router_aux_loss_coef"});
}

}  // namespace

void ReadGpt2(ConfigFields& fields, v1::ModelSpec& model) {
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_vocab(fields.Count("vocab_size", 50257));
  model.set_hidden(fields.Count("n_embd", 768));
  model.set_layers(fields.Count("n_layer", 12));
  model.set_heads(fields.Count("n_head", 12));
  model.set_ffn(fields.Count("n_inner", 4 * model.hidden()));
  model.set_max_sequence_length(fields.Count("n_positions", 1024));
  model.set_norm_epsilon(fields.Number("layer_norm_epsilon", 1e-5));
  model.set_tied_head(fields.Flag("tie_word_embeddings", true));
  const std::string activation = fields.Text("activation_function", "gelu_new");
  if (activation == "relu") {
    model.set_feed_forward(v1::FEED_FORWARD_RELU);
  } else if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    fields.Refuse("activation_function", absl::StrCat("'", activation, "'; known are gelu_new and relu"));
  }
  fields.Require("scale_attn_weights", true);
  fields.Require("scale_attn_by_inverse_layer_idx", false);
  fields.Require("add_cross_attention", false);
  fields.MeansNothing({"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                       "summary_proj_to_labels", "summary_type", "summary_use_proj"});
}

void ReadLlama(ConfigFields& fields, v1::ModelSpec& model) {
  SetLlamaParts(model);
  model.set_vocab(fields.Count("vocab_size", 32000));
  model.set_hidden(fields.Count("hidden_size", 4096));
  model.set_ffn(fields.Count("intermediate_size", 11008));
  model.set_layers(fields.Count("num_hidden_layers", 32));
  model.set_heads(fields.Count("num_attention_heads", 32));
  model.set_key_value_heads(fields.Count("num_key_value_heads", model.heads()));
  model.set_attention_inner(model.heads() * fields.Count("head_dim", model.hidden() / model.heads()));
  model.set_max_sequence_length(fields.Count("max_position_embeddings", 2048));
  model.set_norm_epsilon(fields.Number("rms_norm_eps", 1e-6));
  model.set_tied_head(fields.Flag("tie_word_embeddings", false));
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_feed_forward_biases(AllOrNone(fields.Flag("mlp_bias", false)));
  ReadRotary(fields, *model.mutable_rotary());
  fields.Require("hidden_act", "silu");
  // Of another order of the same sums.
  fields.MeansNothing({"pretraining_tp"});
}

void ReadQwen2(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_QUERY_KEY_VALUE);
  ReadQwenWindow(fields, model);
}

void ReadQwen3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_head_norms(true);
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  ReadQwenWindow(fields, model);
}

void ReadQwen3Moe(ConfigFields& fields, v1::ModelSpec& model) {
  ReadQwen3(fields, model);
  // In place of that of a dense layer, which there is none of.
  model.set_ffn(fields.Count("moe_intermediate_size"));
  ReadExperts(fields, model);
  model.set_normalised_experts(fields.Flag("norm_topk_prob", false));
  fields.Require("decoder_sparse_step", 1);
  fields.Require("mlp_only_layers", nlohmann::json::array());
}

void ReadMixtral(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_NONE);
  ReadExperts(fields, model);
  model.set_normalised_experts(true);
  fields.Require("router_jitter_noise", 0.0);
  // Unlike Mistral's, its class has no window where nothing is said.
  LimitToWindow(fields.Count("sliding_window", model.max_sequence_length()), model);
}

void ReadMistral(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_NONE);
  LimitToWindow(ReadWindow(fields, model), model);
}

void ReadPhi3(ConfigFields& fields, v1::ModelSpec& model) {
  // Of a scaling that ReadScaling refuses.
  fields.MeansNothing({"original_max_position_embeddings"});
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_NONE);
  fields.Require("attention_bias", false);
  fields.Require("partial_rotary_factor", 1.0);
  LimitToWindow(fields.Count("sliding_window", model.max_sequence_length()), model);
}

void ReadGranite(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_feed_forward_biases(AllOrNone(fields.Flag("mlp_bias", false)));
  v1::Multipliers& multipliers = *model.mutable_multipliers();
  multipliers.set_embedding(fields.Number("embedding_multiplier", 1));
  multipliers.set_residual(fields.Number("residual_multiplier", 1));
  multipliers.set_attention(fields.Number("attention_multiplier", 1));
  multipliers.set_logits(fields.Number("logits_scaling", 1));
}

void ReadSmolLm3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_feed_forward_biases(AllOrNone(fields.Flag("mlp_bias", false)));
  model.set_tied_head(fields.Flag("tie_word_embeddings", true));
  model.set_positionless_interval(fields.Count("no_rope_layer_interval", 4));
  // 0 for a layer without positions; transformers writes what the interval makes.
  const nlohmann::json layers = fields.List("no_rope_layers");
  for (size_t i = 0; i < layers.size(); ++i) {
    const int expected = (i + 1) % model.positionless_interval() == 0 ? 0 : 1;
    if (layers[i] != expected)
      fields.Refuse("no_rope_layers", absl::StrCat("layer ", i, " is ", layers[i].dump(),
                                                   "; known is 0 for every no_rope_layer_interval-th alone"));
  }
  ReadQwenWindow(fields, model);
  // Of another order of the same sums.
  fields.MeansNothing({"pretraining_tp"});
}

void ReadT5(ConfigFields& fields, v1::ModelSpec& model) {
  model.set_architecture(v1::ARCHITECTURE_T5);
  model.set_vocab(fields.Count("vocab_size", 32128));
  model.set_hidden(fields.Count("d_model", 512));
  model.set_ffn(fields.Count("d_ff", 2048));
  model.set_encoder_layers(fields.Count("num_layers", 6));
  model.set_decoder_layers(fields.Count("num_decoder_layers", model.encoder_layers()));
  model.set_heads(fields.Count("num_heads", 8));
  model.set_attention_inner(model.heads() * fields.Count("d_kv", 64));
  model.set_norm_epsilon(fields.Number("layer_norm_epsilon", 1e-6));
  model.set_relative_position_buckets(fields.Count("relative_attention_num_buckets", 32));
  model.set_relative_position_max_distance(fields.Count("relative_attention_max_distance", 128));
  // Decoders begin with the padding token where nothing else is said.
  const auto start = fields.Number("decoder_start_token_id", fields.Number("pad_token_id", 0));
  model.set_decoder_start_token(static_cast<uint32_t>(start));
  model.set_tied_embeddings(true);
  // T5 1.1 says that its head is its own. transformers 5 says so of none, and of one that was T5 1.1 that its
  // outputs are not scaled: a checkpoint with a head of its own keeps it (import_model.h).
  model.set_tied_head(fields.Flag("tie_word_embeddings", true));
  const bool scaled = fields.Flag("scale_decoder_outputs", model.tied_head());
  model.set_unscaled_head(model.tied_head() && !scaled);
  if (scaled && !model.tied_head())
    fields.Refuse("scale_decoder_outputs",
                  "true with tie_word_embeddings false; Penstock scales a tied head alone");
  const std::string feed_forward = fields.Text("feed_forward_proj", "relu");
  if (feed_forward == "gated-gelu") {
    model.set_feed_forward(v1::FEED_FORWARD_GATED_GELU);
    fields.Require("dense_act_fn", "gelu_new");
  } else if (feed_forward == "gated-silu") {
    model.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
    fields.Require("dense_act_fn", "silu");
  } else if (feed_forward == "relu") {
    model.set_feed_forward(v1::FEED_FORWARD_RELU);
    fields.Require("dense_act_fn", "relu");
  } else {
    fields.Refuse("feed_forward_proj",
                  absl::StrCat("'", feed_forward, "'; known are relu, gated-gelu and gated-silu"));
  }
  fields.Require("is_gated_act", absl::StartsWith(feed_forward, "gated-"));
  fields.Require("is_encoder_decoder", true);
  fields.MeansNothing({"n_positions", "classifier_dropout", "initializer_factor"});
}

}  // namespace penstock::cli
