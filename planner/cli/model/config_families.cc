#include "planner/cli/model/config_families.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner/cli/model/config_experts.h"
#include "planner/cli/model/config_like_a_llama.h"
#include "planner/cli/model/config_rotary.h"
#include "planner/cli/model/config_windows.h"

namespace penstock::cli {
namespace {

// A cap that is null is none, and a missing one the class's.
double ReadCap(ConfigFields& fields, const std::string& field, double usual) {
  const double cap = fields.Number(field, fields.Names(field) ? 0 : usual);
  if (fields.Has(field) && cap == 0) fields.Refuse(field, "0; must be above 0, or null for none");
  return cap;
}

// Of a Qwen3 with experts or without, but for its windows.
void ReadPartsOfQwen3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_head_norms(true);
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
}

// What all Gemmas have: embeddings are multiplied by the root of `hidden`.
void SetGemmaParts(ConfigFields& fields, v1::ModelSpec& model) {
  model.set_tied_head(fields.Flag("tie_word_embeddings", true));
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_offset_norms(true);
  model.mutable_multipliers()->set_embedding(std::sqrt(static_cast<double>(model.hidden())));
  fields.Require("use_bidirectional_attention", false);
}

// What Gemma 2 and 3 have, but for rotary positions and windows. The root of a head's width has a field here.
void ReadLikeAGemma(ConfigFields& fields, v1::ModelSpec& model, bool rotary_of_windows) {
  ReadLikeALlama(fields, model,
                 {.feed_forward = v1::FEED_FORWARD_GATED_GELU,
                  .activation_field = "hidden_activation",
                  .activation = "gelu_pytorch_tanh",
                  .rotary_of_windows = rotary_of_windows ? &kGemma3Rotary : nullptr});
  // An old name, which no class reads any more.
  fields.MeansNothing({"hidden_act"});
  SetGemmaParts(fields, model);
  model.set_norm_placement(v1::NORM_PLACEMENT_BOTH);
  v1::Multipliers& multipliers = *model.mutable_multipliers();
  const double scalar = fields.Number("query_pre_attn_scalar", 256);
  if (scalar == 0) fields.Refuse("query_pre_attn_scalar", "0; must be above 0");
  multipliers.set_attention(1 / std::sqrt(scalar));
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
  ReadRotary(fields, {}, model);
  fields.Require("hidden_act", "silu");
  // Of another order of the same sums.
  fields.MeansNothing({"pretraining_tp"});
}

void ReadSeedOss(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  const bool attention = fields.Flag("attention_bias", true);
  const bool output = fields.Flag("attention_out_bias", false);
  if (output && !attention)
    fields.Refuse("attention_out_bias",
                  "true without attention_bias; Penstock has such a bias with the others alone");
  model.set_attention_biases(attention && !output ? v1::BIASES_QUERY_KEY_VALUE : AllOrNone(attention));
  model.set_feed_forward_biases(AllOrNone(fields.Flag("mlp_bias", false)));
  fields.MeansNothing({"pretraining_tp"});
}

void ReadCwm(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model, {.epsilon = 1e-5});
  model.set_attention_biases(v1::BIASES_NONE);
  model.set_feed_forward_biases(AllOrNone(fields.Flag("mlp_bias", false)));
  const uint32_t window = ReadWindow(fields, 8192);
  if (!fields.Has("layer_types")) fields.Refuse("layer_types", "is missing; transformers writes it");
  SetWindows(fields, window, /*interval=*/0, model);
  fields.MeansNothing({"pretraining_tp"});
}

void ReadQwen2(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_QUERY_KEY_VALUE);
  ReadQwenWindows(fields, model);
}

void ReadQwen3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadPartsOfQwen3(fields, model);
  ReadQwenWindows(fields, model);
}

void ReadQwen3Moe(ConfigFields& fields, v1::ModelSpec& model) {
  ReadPartsOfQwen3(fields, model);
  // Its class knows no layers without the window.
  const uint32_t window = ReadWindow(fields, kUsualWindow);
  if (fields.Flag("use_sliding_window", false)) model.set_attention_window(window);
  fields.MeansNothing({"max_window_layers"});
  ReadQwenExperts(fields, model);
}

void ReadQwen2Moe(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(fields.Flag("qkv_bias", true) ? v1::BIASES_QUERY_KEY_VALUE : v1::BIASES_NONE);
  ReadQwenExperts(fields, model);
  model.set_shared_expert_ffn(fields.Count("shared_expert_intermediate_size"));
  model.set_gated_shared_expert(true);
  fields.MeansNothing({"max_window_layers"});
  if (!fields.Flag("use_sliding_window", false)) {
    // 0 where it is not used.
    fields.MeansNothing({"sliding_window"});
    return fields.RequireAll("layer_types", "full_attention");
  }
  if (!fields.Has("layer_types"))
    fields.Refuse("layer_types",
                  "is missing, and versions of transformers differ in which layers then have the window; "
                  "name them");
  SetWindows(fields, ReadWindow(fields, kUsualWindow), 0, model);
}

void ReadOlmoe(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_norm_epsilon(fields.Number("rms_norm_eps", 1e-5));
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_joint_head_norms(true);
  // 0 would leave nothing of them.
  if (fields.Has("clip_qkv") && fields.Number("clip_qkv") == 0)
    fields.Refuse("clip_qkv", "0; must be above 0, or null for none");
  model.set_query_key_value_clip(fields.Number("clip_qkv", 0));
  ReadExperts(fields, model);
  model.set_normalised_experts(fields.Flag("norm_topk_prob", false));
}

void ReadMixtral(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_NONE);
  ReadExperts(fields, model);
  model.set_normalised_experts(true);
  fields.Require("router_jitter_noise", 0.0);
  // Unlike Mistral's, its class has no window where nothing is said.
  model.set_attention_window(ReadWindow(fields, 0));
}

void ReadMinistral(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_NONE);
  SetWindows(fields, ReadWindow(fields, kUsualWindow), /*interval=*/0, model);
}

void ReadMistral(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_attention_biases(v1::BIASES_NONE);
  model.set_attention_window(ReadWindow(fields, kUsualWindow));
}

void ReadPhi3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model, {.rotary = {.like_phi3 = true, .usual_part = 1}});
  model.set_attention_biases(v1::BIASES_NONE);
  fields.Require("attention_bias", false);
  // Of Phi-4-mini.
  fields.Require("mlp_bias", false);
  fields.Require("lm_head_bias", false);
  fields.Require("full_attn_mod", 1);
  // Names code beside the checkpoint that computes the same.
  fields.MeansNothing({"auto_map", "interpolate_factor"});
  model.set_attention_window(ReadWindow(fields, 0));
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
  ReadSmolLm3Windows(fields, model);
  // Of another order of the same sums.
  fields.MeansNothing({"pretraining_tp"});
}

void ReadGemma(ConfigFields& fields, v1::ModelSpec& model) {
  // Both names of the activation stand for the tanh form, which the first weights were made with.
  const std::string activation = fields.Text("hidden_act", "gelu_pytorch_tanh");
  if (activation != "gelu" && activation != "gelu_pytorch_tanh")
    fields.Refuse("hidden_act", absl::StrCat("'", activation, "'; known are gelu and gelu_pytorch_tanh"));
  ReadLikeALlama(fields, model,
                 {.feed_forward = v1::FEED_FORWARD_GATED_GELU,
                  .activation_field = "hidden_activation",
                  .activation = "gelu_pytorch_tanh"});
  SetGemmaParts(fields, model);
}

void ReadGemma2(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeAGemma(fields, model, /*rotary_of_windows=*/false);
  SetWindows(fields, ReadWindow(fields, kUsualWindow), /*interval=*/2, model);
  model.set_score_cap(ReadCap(fields, "attn_logit_softcapping", 50));
  model.set_logit_cap(ReadCap(fields, "final_logit_softcapping", 30));
  // What chose between implementations of the same.
  fields.MeansNothing({"cache_implementation"});
}

void ReadGemma3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeAGemma(fields, model, /*rotary_of_windows=*/true);
  model.set_head_norms(true);
  const uint32_t interval = fields.Count("sliding_window_pattern", 6);
  fields.MeansNothing({"_sliding_window_pattern"});
  SetWindows(fields, ReadWindow(fields, kUsualWindow), interval, model);
  if (model.attention_window() == 0) model.clear_window_rotary_theta();
  // Its class has the field and does nothing with it.
  fields.Require("attn_logit_softcapping", nullptr);
  model.set_logit_cap(ReadCap(fields, "final_logit_softcapping", 0));
  fields.MeansNothing({"cache_implementation"});
}

void ReadOlmo2(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model);
  model.set_norm_epsilon(fields.Number("rms_norm_eps", 1e-5));
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_norm_placement(v1::NORM_PLACEMENT_AFTER);
  model.set_joint_head_norms(true);
}

void ReadOlmo3(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model, {.rotary_of_windows = &kOlmo3Rotary});
  model.set_norm_epsilon(fields.Number("rms_norm_eps", 1e-5));
  model.set_attention_biases(AllOrNone(fields.Flag("attention_bias", false)));
  model.set_norm_placement(v1::NORM_PLACEMENT_AFTER);
  model.set_joint_head_norms(true);
  SetWindows(fields, ReadWindow(fields, kUsualWindow), /*interval=*/4, model);
  const bool alike = model.rotary().scaling() == v1::ROTARY_SCALING_UNSPECIFIED &&
                     model.rotary().theta() == model.window_rotary_theta();
  if (model.attention_window() == 0 || alike) model.clear_window_rotary_theta();
}

namespace {

// But for the head.
void ReadPartsOfT5(ConfigFields& fields, const std::string& usual_feed_forward, v1::ModelSpec& model) {
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
  const std::string feed_forward = fields.Text("feed_forward_proj", usual_feed_forward);
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

}  // namespace

void ReadT5(ConfigFields& fields, v1::ModelSpec& model) {
  ReadPartsOfT5(fields, "relu", model);
  // T5 1.1 says that its head is its own. transformers 5 says so of none, and of one that was T5 1.1 that its
  // outputs are not scaled: a checkpoint with a head of its own keeps it (import_model.h).
  model.set_tied_head(fields.Flag("tie_word_embeddings", true));
  const bool scaled = fields.Flag("scale_decoder_outputs", model.tied_head());
  model.set_unscaled_head(model.tied_head() && !scaled);
  if (scaled && !model.tied_head())
    fields.Refuse("scale_decoder_outputs",
                  "true with tie_word_embeddings false; Penstock scales a tied head alone");
}

void ReadMt5(ConfigFields& fields, v1::ModelSpec& model) {
  ReadPartsOfT5(fields, "gated-gelu", model);
  // transformers 5 ties it whatever this says; before it the checkpoint had a head of its own, which stays.
  fields.MeansNothing({"tie_word_embeddings"});
  model.set_tied_head(true);
  model.set_unscaled_head(true);
}

}  // namespace penstock::cli
