// Configurations that are refused, and by which field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "planner/cli/model/hugging_face_config.h"
#include "tests/unit/cli/model/family_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

TEST(HuggingFaceConfigTest, RefusesAFamilyByWhatItHas) {
  EXPECT_THAT(RefusalOf(Llama(), "model_type", "cohere"),
              HasSubstr("'cohere' has attention and feed-forward part side by side, which Penstock has not; "
                        "known are cwm"));
  EXPECT_THAT(RefusalOf(Qwen2(), "num_key_value_heads", nullptr),
              HasSubstr("num_key_value_heads: is missing"));
  EXPECT_THAT(RefusalOf(Qwen2(), "rope_theta", nullptr), HasSubstr("rope_theta: is missing"));
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

}  // namespace
}  // namespace penstock::cli
