#include "planner/core/contract/check_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace penstock::core {
namespace {

using ::testing::StartsWith;

constexpr char kLlama[] = R"pb(
  architecture: ARCHITECTURE_GPT
  layers: 2
  hidden: 32
  heads: 8
  ffn: 64
  vocab: 100
  max_sequence_length: 64
  dtype: DATA_TYPE_FLOAT32
  position: POSITION_ROTARY
  rotary {
    theta: 500000
    scaling: ROTARY_SCALING_LLAMA3
    factor: 8
    low_frequency_factor: 1
    high_frequency_factor: 4
    original_max_sequence_length: 8192
  }
  norm: NORM_RMS
  norm_epsilon: 1e-5
  key_value_heads: 2
  attention_biases: BIASES_QUERY_KEY_VALUE
  feed_forward: FEED_FORWARD_GATED_SILU
  feed_forward_biases: BIASES_NONE
  tied_head: true
)pb";

// Of a Llama that `text` changes; what is repeated in it replaces.
std::string Refusal(const std::string& text) {
  v1::ModelSpec model;
  v1::ModelSpec change;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kLlama, &model));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &change)) << text;
  model.MergeFrom(change);
  return std::string(CheckModel(model).message());
}

TEST(CheckModelTest, ALlamaIsAModel) { EXPECT_EQ(Refusal(""), ""); }

TEST(CheckModelTest, NamesThePartThatCannotBe) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"norm: 9", "job.model.norm: is unknown"},
      {"norm_epsilon: 2", "job.model.norm_epsilon: 2; use 0 to 1"},
      {"norm_epsilon: -1e-5", "job.model.norm_epsilon: -1e-05; use 0 to 1"},
      {"norm_epsilon: nan", "job.model.norm_epsilon: nan; use 0 to 1"},
      {"key_value_heads: 3", "job.model.key_value_heads: 3; must divide heads, 8"},
      {"experts_per_token: 2", "job.model.experts_per_token: without experts"},
      {"experts: 4 feed_forward_biases: BIASES_NONE",
       "job.model.experts_per_token: 0; use 1 to the experts, 4"},
      {"experts: 4 experts_per_token: 5 feed_forward_biases: BIASES_NONE",
       "job.model.experts_per_token: 5; use 1 to the experts, 4"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_ALL",
       "job.model.feed_forward_biases: experts have none"},
      {"shared_expert_ffn: 4", "job.model.shared_expert_ffn: without experts"},
      {"gated_shared_expert: true", "job.model.gated_shared_expert: without experts"},
      {"router_balance_loss: 0.1", "job.model.router_balance_loss: without experts"},
      {"router_z_loss: nan", "job.model.router_z_loss: without experts"},
      {"expert_capacity_factor: 1", "job.model.expert_capacity_factor: without experts"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE expert_capacity_factor: -1",
       "job.model.expert_capacity_factor: -1; must be finite and at least 0"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE gated_shared_expert: true",
       "job.model.gated_shared_expert: without a shared_expert_ffn"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE router_balance_loss: -0.1",
       "job.model.router_balance_loss: -0.1; must be finite and at least 0"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE router_z_loss: inf",
       "job.model.router_z_loss: inf; must be finite and at least 0"},
      {"dense_layers: 1", "job.model.dense_layers: without experts all layers are dense"},
      {"dense_ffn: 8", "job.model.dense_ffn: without experts it is ffn"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE dense_ffn: 8",
       "job.model.dense_ffn: without dense_layers"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE dense_layers: [2, 1]",
       "job.model.dense_layers: 1 behind 2; count from 1, and ascend"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE dense_layers: 0",
       "job.model.dense_layers: 0 behind 0"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE layers: 2 dense_layers: 3",
       "job.model.dense_layers: 3; the model has 2 layers"},
      {"experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE layers: 2 dense_layers: [1, 2]",
       "job.model.dense_layers: are all layers"},
      {"query_key_value_clip: -8", "job.model.query_key_value_clip: -8; must be finite and at least 0"},
      {"key_value_heads: 16", "job.model.key_value_heads: 16; must divide heads, 8"},
      {"attention_biases: 9", "job.model.attention_biases: is unknown"},
      {"feed_forward_biases: BIASES_QUERY_KEY_VALUE", "job.model.feed_forward_biases: use NONE or ALL"},
      {"feed_forward: 9", "job.model.feed_forward: is unknown"},
      {"position: 9", "job.model.position: is unknown"},
      {"position: POSITION_RELATIVE_BIAS", "job.model.position: RELATIVE_BIAS is a T5's"},
      {"position: POSITION_LEARNED", "job.model.rotary: is for POSITION_ROTARY alone"},
      {"attention_inner: 40", "job.model.position: ROTARY turns pairs of elements; the width of a head, 5,"},
      {"rotary { theta: 0.5 }", "job.model.rotary.theta: 0.5; must be finite and at least 1"},
      {"rotary { theta: inf }", "job.model.rotary.theta: inf; must be finite"},
      {"rotary { scaling: 7 }", "job.model.rotary.scaling: is unknown"},
      {"rotary { factor: 0.5 }", "job.model.rotary.factor: 0.5; must be finite and at least 1"},
      {"rotary { low_frequency_factor: -1 }", "job.model.rotary.low_frequency_factor: -1; must be"},
      {"rotary { high_frequency_factor: 1 }",
       "job.model.rotary.high_frequency_factor: 1; must be finite and"},
      {"rotary { original_max_sequence_length: 16777217 }",
       "job.model.rotary.original_max_sequence_length: 16777217; use 1 to 16777216"},
      {"rotary { scaling: ROTARY_SCALING_LINEAR }",
       "job.model.rotary.low_frequency_factor: is of the LLAMA3 scaling"},
      {"tied_embeddings: true", "job.model.tied_embeddings: a GPT has one embedding"},
      {"unscaled_head: true", "job.model.unscaled_head: a GPT has no other"},
      {"multipliers { residual: -1 }", "job.model.multipliers: -1; use finite numbers"},
      {"position: POSITION_LEARNED positionless_interval: 4",
       "job.model.positionless_interval: only rotary positions"},
      {"rotary { beta_fast: 32 }", "job.model.rotary.beta_fast: is of the YARN scaling; leave 0"},
      {"rotary { attention_factor: 1 }", "job.model.rotary.attention_factor: is of the YARN or LONGROPE"},
      {"rotary { long_factors: 1 }", "job.model.rotary.long_factors: is of the LONGROPE scaling"},
      {"rotary { width: 3 }", "job.model.rotary.width: 3; use an even number up to the width of a head, 4"},
      {"rotary { width: 6 }", "job.model.rotary.width: 6; use an even number up to the width of a head, 4"},
      {"attention_window: 16777217", "job.model.attention_window: 16777217; use at most 16777216"},
      {"windowless_interval: 2", "job.model.windowless_interval: without an attention_window"},
      {"windowless_layers: [1]", "job.model.windowless_layers: without an attention_window"},
      {"attention_window: 4 windowless_interval: 2 windowless_layers: [1]",
       "job.model.windowless_layers: not together with windowless_interval"},
      {"attention_window: 4 windowless_layers: [2, 2]",
       "job.model.windowless_layers: 2 behind 2; count from"},
      {"attention_window: 4 windowless_layers: [0]", "job.model.windowless_layers: 0 behind 0; count from 1"},
      {"attention_window: 4 windowless_layers: [99]", "job.model.windowless_layers: 99; the model has"},
      {"window_rotary_theta: 100", "job.model.window_rotary_theta: without an attention_window"},
      {"attention_window: 4 window_rotary_theta: 0.5", "job.model.window_rotary_theta: 0.5; must be finite"},
      {"score_cap: -1", "job.model.score_cap: -1; must be finite and at least 0"},
      {"logit_cap: inf", "job.model.logit_cap: inf; must be finite and at least 0"},
      {"norm_placement: 7", "job.model.norm_placement: is unknown; use BEFORE, AFTER or BOTH"},
      {"norm: NORM_LAYER offset_norms: true", "job.model.offset_norms: is of a GPT with NORM_RMS"},
      {"head_norms: true joint_head_norms: true",
       "job.model.joint_head_norms: not together with head_norms"}};
  for (const auto& [change, refusal] : kWrong) EXPECT_THAT(Refusal(change), StartsWith(refusal)) << change;
}

TEST(CheckModelTest, ASharedExpertAndLossesOfRoutersStandBesideExperts) {
  EXPECT_EQ(Refusal("experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE shared_expert_ffn: 12 "
                    "gated_shared_expert: true router_balance_loss: 0.01 router_z_loss: 0.001 "
                    "expert_capacity_factor: 1.25 "
                    "query_key_value_clip: 8"),
            "");
  EXPECT_EQ(Refusal("experts: 4 experts_per_token: 2 feed_forward_biases: BIASES_NONE layers: 4 "
                    "dense_layers: [1, 3] dense_ffn: 12"),
            "");
}

TEST(CheckModelTest, AFactorWithoutAScalingIsAMistake) {
  v1::ModelSpec model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kLlama, &model));
  model.mutable_rotary()->set_scaling(v1::ROTARY_SCALING_UNSPECIFIED);
  EXPECT_THAT(std::string(CheckModel(model).message()),
              StartsWith("job.model.rotary.factor: without a scaling; leave 0"));
  model.mutable_rotary()->clear_factor();
  EXPECT_THAT(std::string(CheckModel(model).message()),
              StartsWith("job.model.rotary.low_frequency_factor: is of the LLAMA3 scaling"));
}

// `kLlama` with other rotary positions.
std::string RotaryRefusal(const std::string& rotary) {
  v1::ModelSpec model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kLlama, &model));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(rotary, model.mutable_rotary())) << rotary;
  return std::string(CheckModel(model).message());
}

TEST(CheckModelTest, YarnHasAllItsNumbers) {
  const std::string yarn =
      "scaling: ROTARY_SCALING_YARN factor: 4 original_max_sequence_length: 32 attention_factor: 1.1 ";
  EXPECT_EQ(RotaryRefusal(yarn + "beta_fast: 32 beta_slow: 1 truncated: true"), "");
  EXPECT_THAT(RotaryRefusal(yarn), StartsWith("job.model.rotary.beta_slow: 0; must be finite and above 0"));
  EXPECT_THAT(RotaryRefusal(yarn + "beta_fast: 1 beta_slow: 1"),
              StartsWith("job.model.rotary.beta_fast: 1; must be finite and above beta_slow, 1"));
  EXPECT_THAT(RotaryRefusal("scaling: ROTARY_SCALING_YARN factor: 4 beta_fast: 32 beta_slow: 1"),
              StartsWith("job.model.rotary.attention_factor: 0; must be finite and above 0"));
}

TEST(CheckModelTest, LongRopeHasAFactorForEachPair) {
  const std::string longrope =
      "scaling: ROTARY_SCALING_LONGROPE factor: 4 original_max_sequence_length: 32 attention_factor: 1.1 ";
  const std::string factors = "short_factors: [1, 1] long_factors: [2, 3]";
  EXPECT_EQ(RotaryRefusal(longrope + factors), "");
  EXPECT_THAT(
      RotaryRefusal(longrope + "width: 2 " + factors),
      StartsWith("job.model.rotary.short_factors: 2 of them; must be one for each pair that turns, 1"));
  EXPECT_THAT(RotaryRefusal(longrope + "short_factors: [1, 0] long_factors: [2, 3]"),
              StartsWith("job.model.rotary.short_factors: 0; must be finite and above 0"));
}

TEST(CheckModelTest, WindowsCapsAndNormsBehindAreOfAGpt) {
  EXPECT_EQ(Refusal("attention_window: 4 windowless_interval: 2 window_rotary_theta: 100 score_cap: 50 "
                    "logit_cap: 30 norm_placement: NORM_PLACEMENT_BOTH offset_norms: true head_norms: true"),
            "");
  EXPECT_EQ(Refusal("attention_window: 4 windowless_layers: [1]"), "");
  EXPECT_EQ(Refusal("norm_placement: NORM_PLACEMENT_AFTER joint_head_norms: true"), "");
  v1::ModelSpec t5;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(architecture: ARCHITECTURE_T5
           encoder_layers: 1
           decoder_layers: 1
           hidden: 8
           heads: 2
           ffn: 8
           vocab: 9
           dtype: DATA_TYPE_FLOAT32
           max_sequence_length: 8)pb",
      &t5));
  const auto refusal = [&](const std::string& text) {
    v1::ModelSpec model = t5;
    v1::ModelSpec change;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &change)) << text;
    model.MergeFrom(change);
    return std::string(CheckModel(model).message());
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_THAT(refusal("attention_window: 4"), StartsWith("job.model.attention_window: a T5 has none"));
  EXPECT_THAT(refusal("score_cap: 4"), StartsWith("job.model.score_cap: a T5 has none"));
  EXPECT_THAT(refusal("logit_cap: 4"), StartsWith("job.model.logit_cap: a T5 has none"));
  EXPECT_THAT(refusal("norm_placement: NORM_PLACEMENT_AFTER"), StartsWith("job.model.norm_placement: a T5"));
  EXPECT_THAT(refusal("offset_norms: true"), StartsWith("job.model.offset_norms: is of a GPT"));
  EXPECT_THAT(refusal("joint_head_norms: true"), StartsWith("job.model.joint_head_norms: a T5 has none"));
  EXPECT_THAT(refusal("query_key_value_clip: 8"), StartsWith("job.model.query_key_value_clip: a T5 has"));
}

TEST(CheckModelTest, AT5HasItsOwnPositionsAndWholeHeads) {
  v1::ModelSpec model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(architecture: ARCHITECTURE_T5
           encoder_layers: 1
           decoder_layers: 1
           hidden: 8
           heads: 2
           ffn: 8
           vocab: 9
           dtype: DATA_TYPE_FLOAT32
           max_sequence_length: 8
           position: POSITION_RELATIVE_BIAS
           key_value_heads: 2
           tied_head: true
           tied_embeddings: true)pb",
      &model));
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  model.set_key_value_heads(1);
  EXPECT_THAT(std::string(CheckModel(model).message()), StartsWith("job.model.key_value_heads: a T5 has"));
  model.set_key_value_heads(0);
  model.set_position(v1::POSITION_ROTARY);
  EXPECT_THAT(std::string(CheckModel(model).message()), StartsWith("job.model.position: a T5 has"));
}

}  // namespace
}  // namespace penstock::core
