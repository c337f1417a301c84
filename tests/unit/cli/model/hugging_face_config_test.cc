#include "planner/cli/model/hugging_face_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "planner/core/contract/check_model.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// As meta-llama/Llama-3.2-1B has it.
Json Llama() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 128256})");
}

Json Gpt2() {
  return Json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})");
}

// As mistralai/Mixtral-8x7B-v0.1 has it.
Json Mixtral() {
  return Json::parse(R"({
    "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": true,
    "vocab_size": 32000})");
}

// As Qwen/Qwen3-0.6B has it.
Json Qwen3() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})");
}

// As Qwen/Qwen3-30B-A3B has it.
Json Qwen3Moe() {
  Json config = Qwen3();
  config["architectures"] = {"Qwen3MoeForCausalLM"};
  config["model_type"] = "qwen3_moe";
  config["hidden_size"] = 2048U;
  config["intermediate_size"] = 6144U;
  config["num_attention_heads"] = 32U;
  config["num_hidden_layers"] = 48U;
  config["num_key_value_heads"] = 4U;
  config["tie_word_embeddings"] = false;
  config.update(Json::parse(R"({
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true,
    "num_experts": 128, "num_experts_per_tok": 8, "output_router_logits": false, "router_aux_loss_coef": 0.001})"));
  return config;
}

// As Qwen/Qwen2.5-0.5B has it.
Json Qwen2() {
  return Json::parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

// As Qwen/Qwen1.5-MoE-A2.7B has it.
Json Qwen2Moe() {
  Json config = Qwen2();
  config["architectures"] = {"Qwen2MoeForCausalLM"};
  config["model_type"] = "qwen2_moe";
  config["num_hidden_layers"] = 24U;
  config.erase("layer_types");
  config["max_window_layers"] = 21;
  config["use_sliding_window"] = false;
  config.update(Json::parse(R"({
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 1408, "norm_topk_prob": false,
    "num_experts": 60, "num_experts_per_tok": 4, "output_router_logits": false, "qkv_bias": true,
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632})"));
  return config;
}

// As allenai/OLMoE-1B-7B-0924 has it.
Json Olmoe() {
  return Json::parse(R"({
    "architectures": ["OlmoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "clip_qkv": null,
    "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe", "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 50304})");
}

// As google/t5-v1_1-small has it.
Json T5() {
  return Json::parse(R"({
    "architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64, "d_model": 512,
    "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06, "model_type": "t5",
    "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "output_past": true, "pad_token_id": 0,
    "relative_attention_num_buckets": 32, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32128})");
}

// ibm-granite/granite-3.1-2b-base
Json Granite() {
  return Json::parse(
      R"({"architectures": ["GraniteForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
    "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "granite",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
    "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 5000000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true,
    "vocab_size": 49155})");
}

// HuggingFaceTB/SmolLM3-3B
Json SmolLm3() {
  Json config = Json::parse(R"({"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128012, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3",
    "no_rope_layer_interval": 4, "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
    "pad_token_id": 128004, "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 5000000.0, "sliding_window": null, "torch_dtype": "bfloat16",
    "transformers_version": "4.54.0.dev0", "use_cache": false, "use_sliding_window": false,
    "vocab_size": 128256})");
  for (int i = 1; i <= 36; ++i) config["no_rope_layers"].push_back(i % 4 == 0 ? 0 : 1);
  config["layer_types"] = std::vector<std::string>(36, "full_attention");
  return config;
}

// As google/gemma-2-2b has it.
Json Gemma2() {
  return Json::parse(R"({
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32",
    "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256000})");
}

// As google/gemma-3-1b-it has it.
Json Gemma3() {
  return Json::parse(R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152, "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768,
    "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})");
}

// As allenai/OLMo-2-0425-1B has it.
Json Olmo2() {
  return Json::parse(R"({
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "eos_token_id": 100257,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 16, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 500000, "tie_word_embeddings": false, "torch_dtype": "float32", "transformers_version": "4.47.0",
    "use_cache": true, "vocab_size": 100352})");
}

// As microsoft/Phi-4-mini-instruct has it, with as many factors.
Json Phi4Mini() {
  Json config = Json::parse(R"({
    "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map": {},
    "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1, "hidden_act": "silu",
    "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192, "interpolate_factor": 1,
    "lm_head_bias": false, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3",
    "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096, "pad_token_id": 199999, "partial_rotary_factor": 0.75,
    "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": {"type": "longrope"}, "rope_theta": 10000.0,
    "sliding_window": 262144, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 200064})");
  config["rope_scaling"]["short_factor"] = std::vector<double>(48, 1.0);
  config["rope_scaling"]["long_factor"] = std::vector<double>(48, 2.5);
  return config;
}

// As mistralai/Mistral-7B-v0.3 has it.
Json Mistral() {
  return Json::parse(R"({
    "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0",
    "use_cache": true, "vocab_size": 32768})");
}

v1::ModelSpec SpecOf(const Json& config) {
  const auto model = ModelOfConfig("config.json", config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : v1::ModelSpec();
}

std::string RefusalOf(Json config, const std::string& field, const Json& value) {
  config[field] = value;
  const auto model = ModelOfConfig("config.json", config);
  return model.ok() ? "" : std::string(model.status().message());
}

TEST(HuggingFaceConfigTest, ReadsALlama) {
  const v1::ModelSpec model = SpecOf(Llama());
  EXPECT_EQ(model.architecture(), v1::ARCHITECTURE_GPT);
  EXPECT_EQ(model.layers(), 16);
  EXPECT_EQ(model.hidden(), 2048);
  EXPECT_EQ(model.heads(), 32);
  EXPECT_EQ(model.key_value_heads(), 8);
  EXPECT_EQ(model.attention_inner(), 2048);
  EXPECT_EQ(model.ffn(), 8192);
  EXPECT_EQ(model.vocab(), 128256);
  EXPECT_EQ(model.max_sequence_length(), 131072);
  EXPECT_EQ(model.dtype(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(model.norm(), v1::NORM_RMS);
  EXPECT_EQ(model.norm_epsilon(), 1e-5);
  EXPECT_EQ(model.feed_forward(), v1::FEED_FORWARD_GATED_SILU);
  EXPECT_EQ(model.attention_biases(), v1::BIASES_NONE);
  EXPECT_EQ(model.feed_forward_biases(), v1::BIASES_NONE);
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(model.rotary().theta(), 500000);
  EXPECT_EQ(model.rotary().scaling(), v1::ROTARY_SCALING_LLAMA3);
  EXPECT_EQ(model.rotary().factor(), 32);
  EXPECT_EQ(model.rotary().original_max_sequence_length(), 8192);
}

TEST(HuggingFaceConfigTest, ReadsTheRotaryParametersOfTransformers5) {
  Json config = Llama();
  Json rotary = config["rope_scaling"];
  rotary["rope_theta"] = config["rope_theta"];
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = rotary;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(SpecOf(config), SpecOf(Llama())));
}

TEST(HuggingFaceConfigTest, ReadsAGpt2WithWhatItLeavesOut) {
  const v1::ModelSpec model = SpecOf(Gpt2());
  EXPECT_EQ(model.ffn(), 4 * 768);
  EXPECT_EQ(model.max_sequence_length(), 1024);
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(model.position(), v1::POSITION_UNSPECIFIED);
  EXPECT_EQ(ModelOfConfig("config.json", Gpt2())->dropout, "attn_pdrop 0.1, embd_pdrop 0.1, resid_pdrop 0.1");
  EXPECT_EQ(ModelOfConfig("config.json", Llama())->dropout, "");
}

TEST(HuggingFaceConfigTest, ReadsAQwen2) {
  const v1::ModelSpec model = SpecOf(Qwen2());
  EXPECT_EQ(model.attention_biases(), v1::BIASES_QUERY_KEY_VALUE);
  EXPECT_EQ(model.feed_forward_biases(), v1::BIASES_NONE);
  EXPECT_EQ(model.heads(), 14);
  EXPECT_EQ(model.key_value_heads(), 2);
  EXPECT_EQ(model.attention_inner(), 896);
  EXPECT_EQ(model.max_sequence_length(), 32768);
  EXPECT_EQ(model.rotary().theta(), 1000000);
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(FamilyOf(model), kQwen2);
}

TEST(HuggingFaceConfigTest, AMistralWithoutAWindowIsALlama) {
  const v1::ModelSpec model = SpecOf(Mistral());
  EXPECT_EQ(FamilyOf(model), kLlama);
  Json llama = Mistral();
  llama["model_type"] = "llama";
  llama.erase("sliding_window");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(llama)));
  Json wide = Mistral();
  wide["sliding_window"] = 32768U;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(wide)));
}

TEST(HuggingFaceConfigTest, ReadsAMixtral) {
  const v1::ModelSpec model = SpecOf(Mixtral());
  EXPECT_EQ(model.experts(), 8);
  EXPECT_EQ(model.experts_per_token(), 2);
  EXPECT_TRUE(model.normalised_experts());
  EXPECT_EQ(model.ffn(), 14336);
  EXPECT_FALSE(model.head_norms());
  EXPECT_EQ(FamilyOf(model), kMixtral);
  Json silent = Mixtral();
  silent.erase("sliding_window");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(silent)));
  EXPECT_THAT(RefusalOf(Mixtral(), "router_jitter_noise", 0.1), HasSubstr("router_jitter_noise: 0.1"));
  EXPECT_THAT(RefusalOf(Mixtral(), "num_local_experts", nullptr), HasSubstr("num_local_experts: is missing"));
}

// transformers' sum over a token's experts becomes one of shares, and its mean over layers a sum.
TEST(HuggingFaceConfigTest, TheLossOfRoutersIsRead) {
  EXPECT_EQ(SpecOf(Mixtral()).router_balance_loss(), 0);
  Json config = Mixtral();
  config["output_router_logits"] = true;
  config["router_aux_loss_coef"] = 0.02;
  EXPECT_DOUBLE_EQ(SpecOf(config).router_balance_loss(), 0.02 * 2 / 32);
  EXPECT_THAT(RefusalOf(config, "router_aux_loss_coef", nullptr),
              HasSubstr("router_aux_loss_coef: is missing"));
}

TEST(HuggingFaceConfigTest, ReadsAQwen2WithExperts) {
  const v1::ModelSpec model = SpecOf(Qwen2Moe());
  EXPECT_EQ(model.experts(), 60);
  EXPECT_EQ(model.experts_per_token(), 4);
  EXPECT_FALSE(model.normalised_experts());
  EXPECT_EQ(model.ffn(), 1408);
  EXPECT_EQ(model.shared_expert_ffn(), 5632);
  EXPECT_TRUE(model.gated_shared_expert());
  EXPECT_EQ(model.attention_biases(), v1::BIASES_QUERY_KEY_VALUE);
  EXPECT_EQ(FamilyOf(model), kQwen2Moe);
  // As transformers 5 writes it.
  Json newer = Qwen2Moe();
  newer["sliding_window"] = 0;
  newer["layer_types"] = std::vector<std::string>(24, "full_attention");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(newer)));
  EXPECT_THAT(RefusalOf(Qwen2Moe(), "decoder_sparse_step", 2), HasSubstr("decoder_sparse_step: 2"));
  EXPECT_THAT(RefusalOf(Qwen2Moe(), "mlp_only_layers", Json::array({0})), HasSubstr("mlp_only_layers: [0]"));
  EXPECT_THAT(RefusalOf(Qwen2Moe(), "use_sliding_window", true), HasSubstr("layer_types: is missing"));
}

TEST(HuggingFaceConfigTest, ReadsAnOlmoe) {
  v1::ModelSpec model = SpecOf(Olmoe());
  EXPECT_EQ(model.experts(), 64);
  EXPECT_EQ(model.ffn(), 1024);
  EXPECT_TRUE(model.joint_head_norms());
  EXPECT_EQ(model.query_key_value_clip(), 0);
  EXPECT_EQ(FamilyOf(model), kOlmoe);
  Json clipped = Olmoe();
  clipped["clip_qkv"] = 8.0;
  model.set_query_key_value_clip(8);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(clipped)));
  EXPECT_THAT(RefusalOf(Olmoe(), "clip_qkv", 0.0), HasSubstr("clip_qkv: 0; must be above 0"));
}

TEST(HuggingFaceConfigTest, ReadsAQwen3WithExperts) {
  v1::ModelSpec model = SpecOf(Qwen3Moe());
  EXPECT_TRUE(model.head_norms());
  EXPECT_EQ(model.experts(), 128);
  EXPECT_EQ(model.experts_per_token(), 8);
  EXPECT_TRUE(model.normalised_experts());
  EXPECT_EQ(model.ffn(), 768);
  EXPECT_EQ(model.attention_inner(), 32 * 128);
  EXPECT_EQ(FamilyOf(model), kQwen3Moe);
  // As transformers 5.23 writes it.
  Json renamed = Qwen3Moe();
  renamed["num_local_experts"] = renamed["num_experts"];
  renamed.erase("num_experts");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(renamed)));
  EXPECT_THAT(RefusalOf(Qwen3Moe(), "decoder_sparse_step", 2), HasSubstr("decoder_sparse_step: 2"));
  EXPECT_THAT(RefusalOf(Qwen3Moe(), "mlp_only_layers", Json::array({0})), HasSubstr("mlp_only_layers: [0]"));
}

TEST(HuggingFaceConfigTest, AQwen3IsALlamaWithNormsOfQueriesAndKeys) {
  const v1::ModelSpec model = SpecOf(Qwen3());
  EXPECT_TRUE(model.head_norms());
  EXPECT_EQ(model.experts(), 0);
  EXPECT_EQ(model.attention_biases(), v1::BIASES_NONE);
  EXPECT_EQ(FamilyOf(model), kQwen3);
}

TEST(HuggingFaceConfigTest, AWindowIsThatOfItsLayers) {
  const auto window = [](Json config, const char* field, const Json& value) {
    config[field] = value;
    const v1::ModelSpec model = SpecOf(config);
    return std::pair<uint32_t, uint32_t>(model.attention_window(), model.windowless_interval());
  };
  const auto none = std::pair<uint32_t, uint32_t>(0, 0);
  const auto all = std::pair<uint32_t, uint32_t>(4096, 0);
  EXPECT_EQ(window(Mistral(), "sliding_window", nullptr), none);
  EXPECT_EQ(window(Mistral(), "sliding_window", 4096U), all);
  EXPECT_EQ(window(Mistral(), "sliding_window", 65536U), none);
  EXPECT_EQ(window(Mixtral(), "sliding_window", 4096U), all);
  // transformers takes 4096 where nothing is said.
  Json silent = Mistral();
  silent.erase("sliding_window");
  EXPECT_EQ(window(silent, "num_hidden_layers", 2U), all);
  Json moe = Qwen3Moe();
  moe["sliding_window"] = 4096U;
  EXPECT_EQ(window(moe, "use_sliding_window", true), all);
  Json qwen = Qwen2();
  qwen["sliding_window"] = 4096U;
  qwen["max_window_layers"] = 0;
  EXPECT_EQ(window(qwen, "use_sliding_window", false), none);
  EXPECT_EQ(window(qwen, "use_sliding_window", true), all);
  // From a layer on that there is not.
  qwen["max_window_layers"] = 24;
  EXPECT_EQ(window(qwen, "use_sliding_window", true), none);
  qwen["use_sliding_window"] = true;
  std::vector<std::string> types(24, "full_attention");
  EXPECT_EQ(window(qwen, "layer_types", types), none);
  for (size_t i = 0; i < types.size(); i += 2) types[i] = "sliding_attention";
  EXPECT_EQ(window(qwen, "layer_types", types), (std::pair<uint32_t, uint32_t>(4096, 2)));
}

TEST(HuggingFaceConfigTest, LayersWithAWindowAreThoseThatAreNamed) {
  const auto windowless = [](const Json& config) {
    const v1::ModelSpec model = SpecOf(config);
    return std::vector<uint32_t>(model.windowless_layers().begin(), model.windowless_layers().end());
  };
  Json qwen = Qwen2();
  qwen["use_sliding_window"] = true;
  qwen["sliding_window"] = 4096U;
  std::vector<std::string> types(24, "sliding_attention");
  types[3] = types[4] = "full_attention";
  qwen["layer_types"] = types;
  EXPECT_EQ(windowless(qwen), std::vector<uint32_t>({4, 5}));
  types[3] = "linear_attention";
  EXPECT_THAT(RefusalOf(qwen, "layer_types", types), HasSubstr("layer_types: has \"linear_attention\""));
  EXPECT_THAT(RefusalOf(qwen, "layer_types", std::vector<std::string>(3, "full_attention")),
              HasSubstr("layer_types: has 3 layers; the model has 24"));
  // Those from a layer on.
  qwen.erase("layer_types");
  qwen["max_window_layers"] = 3;
  EXPECT_EQ(windowless(qwen), std::vector<uint32_t>({1, 2, 3}));
  // Of a SmolLM3 those without positions.
  Json smol = SmolLm3();
  smol.erase("layer_types");
  smol["sliding_window"] = 512U;
  smol["use_sliding_window"] = true;
  EXPECT_EQ(windowless(smol).size(), 27U);
  EXPECT_EQ(windowless(smol)[3], 5U);
}

TEST(HuggingFaceConfigTest, APhi3IsALlamaWithOtherTensors) {
  Json phi = Mistral();
  phi["model_type"] = "phi3";
  phi["original_max_position_embeddings"] = 4096U;
  phi["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(FamilyOf(SpecOf(phi)), kLlama);
  phi["sliding_window"] = 2047U;
  const v1::ModelSpec model = SpecOf(phi);
  EXPECT_EQ(model.attention_window(), 2047);
  EXPECT_EQ(model.max_sequence_length(), 32768);
  EXPECT_THAT(RefusalOf(phi, "partial_rotary_factor", 1.5), HasSubstr("partial_rotary_factor: 1.5; must be"));
  EXPECT_THAT(RefusalOf(phi, "rope_scaling", Json{{"type", "yarn"}, {"factor", 2.0}}),
              HasSubstr("rope_scaling: rope_type: 'yarn'; known are default and longrope"));
}

TEST(HuggingFaceConfigTest, APhi4MiniTurnsAPartOfAHeadByFactors) {
  const v1::ModelSpec model = SpecOf(Phi4Mini());
  EXPECT_EQ(FamilyOf(model), kPhi3);
  EXPECT_EQ(model.attention_window(), 0);
  EXPECT_EQ(model.rotary().width(), 96);
  EXPECT_EQ(model.rotary().scaling(), v1::ROTARY_SCALING_LONGROPE);
  EXPECT_EQ(model.rotary().original_max_sequence_length(), 4096);
  EXPECT_EQ(model.rotary().factor(), 32);
  EXPECT_NEAR(model.rotary().attention_factor(), 1.190238, 1e-6);
  EXPECT_EQ(model.rotary().long_factors_size(), 48);
  EXPECT_TRUE(core::CheckModel(model).ok()) << core::CheckModel(model);
  Json few = Phi4Mini();
  few["rope_scaling"]["long_factor"] = std::vector<double>(3, 1.0);
  EXPECT_THAT(
      std::string(core::CheckModel(SpecOf(few)).message()),
      HasSubstr("job.model.rotary.long_factors: 3 of them; must be one for each pair that turns, 48"));
}

TEST(HuggingFaceConfigTest, AYarnHasTheAttentionFactorOfTransformers) {
  const auto rotary = [](const Json& scaling) {
    Json config = Qwen2();
    config["rope_scaling"] = scaling;
    return SpecOf(config).rotary();
  };
  const v1::RotaryPosition usual =
      rotary({{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192U}});
  EXPECT_EQ(usual.scaling(), v1::ROTARY_SCALING_YARN);
  EXPECT_EQ(usual.beta_fast(), 32);
  EXPECT_EQ(usual.beta_slow(), 1);
  EXPECT_TRUE(usual.truncated());
  EXPECT_NEAR(usual.attention_factor(), 1.1386294, 1e-7);
  const v1::RotaryPosition both =
      rotary({{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}});
  EXPECT_NEAR(both.attention_factor(), 1.1386294 / 1.0693147, 1e-7);
  EXPECT_EQ(both.original_max_sequence_length(), 32768);
  EXPECT_EQ(rotary({{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 0.5}}).attention_factor(),
            0.5);
}

TEST(HuggingFaceConfigTest, AGemma2HasNormsOnBothSidesAndCaps) {
  const v1::ModelSpec model = SpecOf(Gemma2());
  EXPECT_EQ(FamilyOf(model), kGemma2);
  EXPECT_EQ(model.norm_placement(), v1::NORM_PLACEMENT_BOTH);
  EXPECT_TRUE(model.offset_norms());
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(model.score_cap(), 50);
  EXPECT_EQ(model.logit_cap(), 30);
  EXPECT_EQ(model.attention_window(), 4096);
  EXPECT_EQ(model.windowless_interval(), 2);
  EXPECT_EQ(model.multipliers().embedding(), 48);
  EXPECT_EQ(model.multipliers().attention(), 1.0 / 16);
  Json uncapped = Gemma2();
  uncapped["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(SpecOf(uncapped).score_cap(), 0);
  uncapped.erase("attn_logit_softcapping");
  EXPECT_EQ(SpecOf(uncapped).score_cap(), 50);
  EXPECT_THAT(RefusalOf(Gemma2(), "use_bidirectional_attention", true),
              HasSubstr("use_bidirectional_attention"));
}

TEST(HuggingFaceConfigTest, AGemma3HasTwoThetas) {
  const v1::ModelSpec model = SpecOf(Gemma3());
  EXPECT_EQ(FamilyOf(model), kGemma3);
  EXPECT_TRUE(model.head_norms());
  EXPECT_EQ(model.rotary().theta(), 1e6);
  EXPECT_EQ(model.window_rotary_theta(), 1e4);
  EXPECT_EQ(model.attention_window(), 512);
  EXPECT_EQ(model.windowless_interval(), 6);
  Json newer = Gemma3();
  for (const char* old : {"rope_local_base_freq", "rope_scaling", "rope_theta", "sliding_window_pattern"})
    newer.erase(old);
  newer["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1000000.0}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(newer)));
  newer["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(RefusalOf(newer, "pad_token_id", 0), HasSubstr("sliding_attention: has a scaling"));
}

TEST(HuggingFaceConfigTest, AnOlmo2HasItsNormsBehind) {
  const v1::ModelSpec model = SpecOf(Olmo2());
  EXPECT_EQ(FamilyOf(model), kOlmo2);
  EXPECT_EQ(model.norm_placement(), v1::NORM_PLACEMENT_AFTER);
  EXPECT_TRUE(model.joint_head_norms());
}

TEST(HuggingFaceConfigTest, RefusesAFamilyByWhatItHas) {
  EXPECT_THAT(RefusalOf(Llama(), "model_type", "cohere"),
              HasSubstr("'cohere' has attention and feed-forward part side by side, which Penstock has not; "
                        "known are cwm"));
  EXPECT_THAT(RefusalOf(Qwen2(), "num_key_value_heads", nullptr),
              HasSubstr("num_key_value_heads: is missing"));
  EXPECT_THAT(RefusalOf(Qwen2(), "rope_theta", nullptr), HasSubstr("rope_theta: is missing"));
}

TEST(HuggingFaceConfigTest, ReadsBothT5s) {
  v1::ModelSpec model = SpecOf(T5());
  EXPECT_EQ(model.encoder_layers(), 8);
  EXPECT_EQ(model.decoder_layers(), 8);
  EXPECT_EQ(model.attention_inner(), 6 * 64);
  EXPECT_EQ(model.feed_forward(), v1::FEED_FORWARD_GATED_GELU);
  EXPECT_TRUE(model.tied_embeddings());
  EXPECT_FALSE(model.tied_head());
  Json first = T5();
  first.erase("tie_word_embeddings");
  first["feed_forward_proj"] = "relu";
  model = SpecOf(first);
  EXPECT_EQ(model.feed_forward(), v1::FEED_FORWARD_RELU);
  EXPECT_TRUE(model.tied_head());
  EXPECT_FALSE(model.unscaled_head());
  // As transformers 5 writes what was a T5 1.1: whether the head is the table, the checkpoint says.
  first["scale_decoder_outputs"] = false;
  EXPECT_TRUE(SpecOf(first).tied_head());
  EXPECT_TRUE(SpecOf(first).unscaled_head());
  first["tie_word_embeddings"] = false;
  EXPECT_FALSE(SpecOf(first).tied_head());
  EXPECT_FALSE(SpecOf(first).unscaled_head());
  EXPECT_THAT(RefusalOf(first, "scale_decoder_outputs", true),
              HasSubstr("Penstock scales a tied head alone"));
}

TEST(HuggingFaceConfigTest, RefusesByNameWhatItDoesNotKnow) {
  EXPECT_THAT(RefusalOf(Llama(), "attention_multiplier", 0.5),
              HasSubstr("config.json: attention_multiplier: 0.5"));
  EXPECT_THAT(RefusalOf(Llama(), "hidden_act", "gelu"), HasSubstr("config.json: hidden_act: \"gelu\""));
  EXPECT_THAT(RefusalOf(Llama(), "model_type", "unheard"), HasSubstr("model_type: 'unheard'; known are cwm"));
  EXPECT_THAT(RefusalOf(Llama(), "model_type", nullptr), HasSubstr("model_type: is missing"));
  EXPECT_THAT(RefusalOf(Llama(), "quantization_config", Json{{"bits", 4}}), HasSubstr("quantization_config"));
  EXPECT_THAT(RefusalOf(Llama(), "torch_dtype", "int8"), HasSubstr("dtype: 'int8'"));
  EXPECT_THAT(RefusalOf(Llama(), "rope_scaling", Json{{"rope_type", "dynamic"}, {"factor", 2.0}}),
              HasSubstr("rope_scaling: rope_type: 'dynamic'"));
  EXPECT_THAT(RefusalOf(Llama(), "rope_scaling", Json{{"rope_type", "linear"}}),
              HasSubstr("config.json: rope_scaling: factor: is missing"));
  EXPECT_THAT(
      RefusalOf(Llama(), "rope_scaling", Json{{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 3}}),
      HasSubstr("beta_fast"));
  EXPECT_THAT(RefusalOf(Gpt2(), "activation_function", "gelu"), HasSubstr("activation_function: 'gelu'"));
  EXPECT_THAT(RefusalOf(Gpt2(), "scale_attn_by_inverse_layer_idx", true), HasSubstr("scale_attn_by_inverse"));
  EXPECT_THAT(RefusalOf(T5(), "feed_forward_proj", "gelu"), HasSubstr("feed_forward_proj: 'gelu'"));
}

TEST(HuggingFaceConfigTest, RefusesValuesOfAWrongKind) {
  EXPECT_THAT(RefusalOf(Llama(), "hidden_size", -4), HasSubstr("hidden_size: -4; must be a whole number"));
  EXPECT_THAT(RefusalOf(Llama(), "hidden_size", "big"), HasSubstr("hidden_size: \"big\""));
  EXPECT_THAT(RefusalOf(Llama(), "hidden_size", 1.5), HasSubstr("hidden_size: 1.5"));
  EXPECT_THAT(RefusalOf(Llama(), "hidden_size", 5000000000), HasSubstr("hidden_size: 5000000000"));
  EXPECT_THAT(RefusalOf(Llama(), "num_attention_heads", 0), HasSubstr("num_attention_heads: 0"));
  EXPECT_THAT(RefusalOf(Llama(), "rms_norm_eps", "small"), HasSubstr("rms_norm_eps: \"small\""));
  EXPECT_THAT(RefusalOf(Llama(), "tie_word_embeddings", 1), HasSubstr("tie_word_embeddings: 1"));
  EXPECT_THAT(RefusalOf(Llama(), "rope_scaling", 4), HasSubstr("rope_scaling: 4; must be an object"));
  EXPECT_THAT(std::string(ModelOfConfig("x.json", Json::array()).status().message()),
              HasSubstr("x.json: is no"));
}

TEST(HuggingFaceConfigTest, AGraniteHasMultipliers) {
  const v1::ModelSpec model = SpecOf(Granite());
  EXPECT_EQ(model.multipliers().embedding(), 12);
  EXPECT_EQ(model.multipliers().residual(), 0.22);
  EXPECT_EQ(model.multipliers().attention(), 0.015625);
  EXPECT_EQ(model.multipliers().logits(), 8);
  EXPECT_EQ(FamilyOf(model), kGranite);
  EXPECT_THAT(RefusalOf(Granite(), "residual_multiplier", -1.0), HasSubstr("residual_multiplier: -1.0"));
}

TEST(HuggingFaceConfigTest, ASmolLm3HasLayersWithoutPositions) {
  const v1::ModelSpec model = SpecOf(SmolLm3());
  EXPECT_EQ(model.positionless_interval(), 4);
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(FamilyOf(model), kSmolLm3);
  EXPECT_THAT(RefusalOf(SmolLm3(), "no_rope_layers", std::vector<int>(36, 1)),
              HasSubstr("no_rope_layers: layer 3 is 1"));
}

TEST(HuggingFaceConfigTest, TheWayBackGivesTheSameModel) {
  Json windowed = Mistral();
  windowed["sliding_window"] = 4096U;
  Json by_turns = Qwen2();
  by_turns["use_sliding_window"] = true;
  by_turns["sliding_window"] = 4096U;
  for (int i = 0; i < 24; ++i)
    by_turns["layer_types"].push_back(i % 3 == 2 ? "full_attention" : "sliding_attention");
  Json yarn = Qwen3();
  yarn["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"truncate", false}};
  Json clipped = Olmoe();
  clipped["clip_qkv"] = 8.0;
  for (const Json& config : {Llama(),   Mistral(), windowed,   Mixtral(), Qwen2(), by_turns,  Qwen2Moe(),
                             Qwen3(),   yarn,      Qwen3Moe(), Olmoe(),   clipped, Gpt2(),    T5(),
                             Granite(), SmolLm3(), Gemma2(),   Gemma3(),  Olmo2(), Phi4Mini()}) {
    v1::ModelSpec model = SpecOf(config);
    const auto written = ConfigOfModel(model);
    ASSERT_TRUE(written.ok()) << written.status();
    const v1::ModelSpec again = SpecOf(Json::parse(written->dump()));
    std::string difference;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(model, again)) << difference;
    if (model.max_sequence_length() == 0) model.set_max_sequence_length(512);
    EXPECT_TRUE(core::CheckModel(model).ok()) << core::CheckModel(model);
  }
}

TEST(HuggingFaceConfigTest, AModelOfNoFamilyIsRefusedByItsField) {
  const auto refusal = [](v1::ModelSpec model) {
    return std::string(ConfigOfModel(model).status().message());
  };
  v1::ModelSpec qwen = SpecOf(Qwen2());
  qwen.set_feed_forward_biases(v1::BIASES_ALL);
  EXPECT_THAT(refusal(qwen),
              HasSubstr("model.feed_forward_biases: its linear layers have a bias, which no qwen2"));
  v1::ModelSpec gpt = SpecOf(Gpt2());
  gpt.set_feed_forward(v1::FEED_FORWARD_GATED_GELU);
  EXPECT_THAT(refusal(gpt), HasSubstr("model.feed_forward: it is gated, which no gpt2"));
  v1::ModelSpec mixtral = SpecOf(Mixtral());
  mixtral.set_attention_biases(v1::BIASES_ALL);
  EXPECT_THAT(refusal(mixtral), HasSubstr("model.attention_biases: its linear layers have a bias"));
  gpt = SpecOf(Gpt2());
  gpt.set_experts(4);
  EXPECT_THAT(refusal(gpt), HasSubstr("model.experts: its feed-forward parts are not dense, which no gpt2"));
  v1::ModelSpec ungated = SpecOf(Qwen2Moe());
  ungated.set_gated_shared_expert(false);
  EXPECT_THAT(refusal(ungated), HasSubstr("model.gated_shared_expert: no expert is shared and gated"));
  v1::ModelSpec clipped = SpecOf(Llama());
  clipped.set_query_key_value_clip(8);
  EXPECT_THAT(refusal(clipped),
              HasSubstr("model.query_key_value_clip: queries, keys and values are clipped"));
  v1::ModelSpec t5 = SpecOf(T5());
  t5.set_tied_embeddings(false);
  EXPECT_THAT(refusal(t5), HasSubstr("model.tied_embeddings: encoder and decoder have"));
}

}  // namespace
}  // namespace penstock::cli
