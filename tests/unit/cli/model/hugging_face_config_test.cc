// What configurations of the families say.
#include "planner/cli/model/hugging_face_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/core/contract/check_model.h"
#include "tests/unit/cli/model/family_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace penstock::cli
