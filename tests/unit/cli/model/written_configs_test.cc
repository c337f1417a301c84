// Configurations that are written, and models that no family has.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>

#include "planner/cli/model/hugging_face_config.h"
#include "planner/core/contract/check_model.h"
#include "tests/unit/cli/model/family_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

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
  Json some = Qwen3Moe();
  some["decoder_sparse_step"] = 2U;
  Json named = Qwen2Moe();
  named["mlp_only_layers"] = {3, 0};
  for (const Json& config :
       {Llama(),  Mistral(),  windowed, Mixtral(),  Qwen2(), by_turns, Qwen2Moe(), Qwen3(),
        yarn,     Qwen3Moe(), Olmoe(),  clipped,    Gpt2(),  T5(),     Granite(),  SmolLm3(),
        Gemma2(), Gemma3(),   Olmo2(),  Phi4Mini(), some,    named}) {
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
  mixtral = SpecOf(Mixtral());
  mixtral.add_dense_layers(1);
  EXPECT_THAT(refusal(mixtral),
              HasSubstr("model.dense_layers: some layers have no experts, which no mixtral"));
  v1::ModelSpec t5 = SpecOf(T5());
  t5.set_tied_embeddings(false);
  EXPECT_THAT(refusal(t5), HasSubstr("model.tied_embeddings: encoder and decoder have"));
}

}  // namespace
}  // namespace penstock::cli
