// Configurations of families that have the parts of others: which parts, and that the way back gives the same
// model.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/core/contract/check_model.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What all of them have.
Json Decoder(const std::string& family) {
  return Json::parse(R"({
    "bos_token_id": 1, "eos_token_id": 2, "head_dim": 64, "hidden_act": "silu", "hidden_size": 512,
    "initializer_range": 0.02, "intermediate_size": 1024, "max_position_embeddings": 8192,
    "num_attention_heads": 8, "num_hidden_layers": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32000,
    "model_type": ")" +
                     family + "\"}");
}

Json With(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

std::vector<std::string> LayerTypes(const std::string& letters) {
  std::vector<std::string> types;
  types.reserve(letters.size());
  for (const char c : letters) types.emplace_back(c == 'L' ? "sliding_attention" : "full_attention");
  return types;
}

Json Gemma() {
  return With(Decoder("gemma"),
              {{"hidden_act", "gelu"}, {"hidden_activation", nullptr}, {"tie_word_embeddings", true}});
}

// As allenai/Olmo-3-7B has it.
Json Olmo3() {
  return With(Decoder("olmo3"), {{"rope_theta", 500000},
                                 {"rope_scaling",
                                  {{"rope_type", "yarn"},
                                   {"factor", 8.0},
                                   {"attention_factor", 1.2079441541679836},
                                   {"beta_fast", 32.0},
                                   {"beta_slow", 1.0},
                                   {"original_max_position_embeddings", 8192U}}},
                                 {"sliding_window", 4096U},
                                 {"layer_types", LayerTypes("LLLGLLLG")}});
}

Json Ministral() {
  return With(Decoder("ministral"), {{"sliding_window", 1024U}, {"layer_types", LayerTypes("GLLLGLLL")}});
}

Json Exaone4() {
  return With(Decoder("exaone4"), {{"sliding_window", 1024U},
                                   {"sliding_window_pattern", "LLLG"},
                                   {"layer_types", LayerTypes("LLLGLLLG")}});
}

Json WithLayerNorms(const std::string& family, const char* epsilon) {
  Json config = Decoder(family);
  config.erase("rms_norm_eps");
  config.erase("head_dim");
  config[epsilon] = 1e-5;
  return config;
}

// As stabilityai/stablelm-2-1_6b has it.
Json StableLm() {
  return With(WithLayerNorms("stablelm", "layer_norm_eps"),
              {{"partial_rotary_factor", 0.25}, {"use_qkv_bias", true}, {"qk_layernorm", false}});
}

// As bigcode/starcoder2-3b has it.
Json Starcoder2() {
  return With(WithLayerNorms("starcoder2", "norm_epsilon"), {{"hidden_act", "gelu_pytorch_tanh"},
                                                             {"mlp_type", "default"},
                                                             {"norm_type", "layer_norm"},
                                                             {"residual_dropout", 0.1},
                                                             {"sliding_window", 4096U},
                                                             {"use_bias", true},
                                                             {"tie_word_embeddings", true}});
}

v1::ModelSpec Read(const Json& config) {
  const auto model = ModelOfConfig("config.json", config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->spec : v1::ModelSpec();
}

std::string Refused(const Json& config) {
  return std::string(ModelOfConfig("config.json", config).status().message());
}

bool Equal(const v1::ModelSpec& one, const v1::ModelSpec& other) {
  return google::protobuf::util::MessageDifferencer::Equals(one, other);
}

TEST(NewerFamiliesTest, TheWayBackGivesTheSameModel) {
  for (const auto& [config, family] :
       std::vector<std::pair<Json, std::string>>{{Gemma(), kGemma},
                                                 {Olmo3(), kOlmo3},
                                                 {Ministral(), kMinistral},
                                                 {Exaone4(), kExaone4},
                                                 {StableLm(), kStableLm},
                                                 {Starcoder2(), kStarcoder2}}) {
    const v1::ModelSpec model = Read(config);
    EXPECT_EQ(FamilyOf(model), family);
    EXPECT_TRUE(core::CheckModel(model).ok()) << core::CheckModel(model);
    const auto written = ConfigOfModel(model);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ((*written)["model_type"], family);
    std::string difference;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(model, Read(Json::parse(written->dump()))))
        << family << ": " << difference;
  }
}

TEST(NewerFamiliesTest, AGemmaHasTheTanhFormWhateverItIsCalled) {
  const v1::ModelSpec model = Read(Gemma());
  EXPECT_EQ(model.feed_forward(), v1::FEED_FORWARD_GATED_GELU);
  EXPECT_TRUE(model.offset_norms());
  EXPECT_EQ(model.norm_placement(), v1::NORM_PLACEMENT_UNSPECIFIED);
  EXPECT_TRUE(Equal(model, Read(With(Gemma(), {{"hidden_act", "gelu_pytorch_tanh"}}))));
  EXPECT_THAT(Refused(With(Gemma(), {{"hidden_act", "silu"}})), HasSubstr("hidden_act: 'silu'"));
}

TEST(NewerFamiliesTest, AnOlmo3ScalesPositionsOfLayersWithoutAWindowAlone) {
  const v1::ModelSpec model = Read(Olmo3());
  EXPECT_EQ(model.rotary().scaling(), v1::ROTARY_SCALING_YARN);
  EXPECT_EQ(model.window_rotary_theta(), 500000);
  EXPECT_EQ(model.windowless_interval(), 4);
  EXPECT_TRUE(model.joint_head_norms());
  // As transformers 5 writes it.
  Json newer = Olmo3();
  Json full = newer["rope_scaling"];
  full["rope_theta"] = 500000.0;
  newer.erase("rope_scaling");
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"full_attention", full},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}};
  EXPECT_TRUE(Equal(model, Read(newer)));
  EXPECT_THAT(Refused(With(Olmo3(), {{"rope_theta", 10000.0}})),
              HasSubstr("rope_theta: 10000; transformers 5 turns layers with a window by 500000"));
  // Where both turn alike nothing is apart.
  EXPECT_EQ(Read(With(Olmo3(), {{"rope_scaling", nullptr}})).window_rotary_theta(), 0);
}

TEST(NewerFamiliesTest, LayersWithAWindowStandAnywhere) {
  const v1::ModelSpec model = Read(Ministral());
  EXPECT_EQ(model.windowless_interval(), 0);
  EXPECT_THAT(model.windowless_layers(), ElementsAre(1, 5));
  // By turns they are told as they always were.
  const v1::ModelSpec by_turns = Read(With(Ministral(), {{"layer_types", LayerTypes("LGLGLGLG")}}));
  EXPECT_EQ(by_turns.windowless_interval(), 2);
  EXPECT_EQ(by_turns.windowless_layers_size(), 0);
  EXPECT_EQ(Read(With(Ministral(), {{"layer_types", LayerTypes("GGGGGGGG")}})).attention_window(), 0);
  EXPECT_THAT(Refused(With(Ministral(), {{"sliding_window", nullptr}})),
              HasSubstr("sliding_window: is missing"));
  // A window that nothing is longer than is none.
  EXPECT_EQ(Read(With(Ministral(), {{"sliding_window", 8192U}})).windowless_layers_size(), 0);
}

TEST(NewerFamiliesTest, AnExaone4HasNoPositionsWhereItHasNoWindow) {
  const v1::ModelSpec model = Read(Exaone4());
  EXPECT_EQ(model.positionless_interval(), 4);
  EXPECT_EQ(model.windowless_interval(), 4);
  EXPECT_EQ(model.norm_placement(), v1::NORM_PLACEMENT_AFTER);
  EXPECT_TRUE(model.head_norms());
  const Json without = {{"sliding_window", nullptr}, {"layer_types", LayerTypes("GGGGGGGG")}};
  EXPECT_EQ(Read(With(Exaone4(), without)).positionless_interval(), 0);
  EXPECT_THAT(Refused(With(Exaone4(), {{"layer_types", LayerTypes("GLLLGLLL")}})),
              HasSubstr("layer_types: layers without a window, which have no positions"));
}

TEST(NewerFamiliesTest, LayerNormsHaveBiases) {
  const v1::ModelSpec model = Read(StableLm());
  EXPECT_EQ(model.norm(), v1::NORM_LAYER);
  EXPECT_EQ(model.attention_biases(), v1::BIASES_QUERY_KEY_VALUE);
  EXPECT_EQ(model.rotary().width(), 16);
  std::vector<std::string> theirs;
  for (const TensorNames& names : CheckpointNames(model, kStableLm)) theirs.push_back(names.pieces[0].name);
  EXPECT_THAT(theirs, testing::IsSupersetOf({"model.layers.0.input_layernorm.bias", "model.norm.bias",
                                             "model.layers.7.post_attention_layernorm.bias"}));
  // What the class takes where nothing is said; what is said in the newest place counts.
  Json silent = StableLm();
  silent.erase("partial_rotary_factor");
  EXPECT_EQ(Read(silent).rotary().width(), 16);
  const Json whole = {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 1.0}};
  EXPECT_EQ(Read(With(StableLm(), {{"rope_parameters", whole}})).rotary().width(), 0);
  EXPECT_THAT(Refused(With(StableLm(), {{"use_parallel_residual", true}})),
              HasSubstr("use_parallel_residual: true"));
  EXPECT_THAT(Refused(With(StableLm(), {{"qk_layernorm", true}})), HasSubstr("qk_layernorm: true"));
  EXPECT_EQ(ModelOfConfig("config.json", Starcoder2())->dropout, "residual_dropout 0.1");
  EXPECT_EQ(Read(Starcoder2()).feed_forward(), v1::FEED_FORWARD_GELU);
}

TEST(NewerFamiliesTest, ASeedOssHasBiasesOfQueriesKeysAndValues) {
  const Json config = With(Decoder("seed_oss"), {{"attention_bias", true}, {"attention_out_bias", false}});
  EXPECT_EQ(Read(config).attention_biases(), v1::BIASES_QUERY_KEY_VALUE);
  EXPECT_EQ(Read(With(config, {{"attention_out_bias", true}})).attention_biases(), v1::BIASES_ALL);
  EXPECT_THAT(Refused(With(config, {{"attention_bias", false}, {"attention_out_bias", true}})),
              HasSubstr("attention_out_bias: true without attention_bias"));
}

TEST(NewerFamiliesTest, ACwmHasItsWindowsInAList) {
  const Json config =
      With(Decoder("cwm"), {{"sliding_window", 1024U}, {"layer_types", LayerTypes("GLLLGLLL")}});
  EXPECT_THAT(Read(config).windowless_layers(), ElementsAre(1, 5));
  EXPECT_THAT(Refused(With(config, {{"layer_types", nullptr}})), HasSubstr("layer_types: is missing"));
}

TEST(NewerFamiliesTest, AnMt5NeverScalesItsHead) {
  const Json config = Json::parse(R"({"model_type": "mt5", "d_ff": 1024, "d_kv": 64, "d_model": 512,
    "feed_forward_proj": "gated-gelu", "num_heads": 6, "num_layers": 8, "tie_word_embeddings": false,
    "vocab_size": 250112})");
  EXPECT_TRUE(Read(config).tied_head());
  EXPECT_TRUE(Read(config).unscaled_head());
  EXPECT_EQ(CheckpointNames(Read(config), kMt5)[0].pieces[0].name, "shared.weight");
}

TEST(NewerFamiliesTest, WhatIsRefusedIsToldByWhatItHas) {
  for (const auto& [family, part] : std::vector<std::pair<std::string, std::string>>{
           {"cohere2", "attention and feed-forward part side by side"},
           {"glm4", "neighbouring elements of a head that turn together"},
           {"qwen3_next", "layers of linear attention"},
           {"nemotron", "a squared ReLU"}}) {
    EXPECT_THAT(Refused(Decoder(family)), HasSubstr("'" + family + "' has " + part));
  }
}

}  // namespace
}  // namespace penstock::cli
