#include "worker/model/model_part.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/worker/model_testing.h"
#include "worker/model/adapter_parameters.h"

namespace penstock::worker {
namespace {

std::set<ModelPart> PartsOf(const std::vector<ParameterSpec>& specs) {
  std::set<ModelPart> parts;
  for (const ParameterSpec& spec : specs) {
    EXPECT_NE(PartOf(spec.name), ModelPart::kNone) << spec.name;
    parts.insert(PartOf(spec.name));
  }
  return parts;
}

std::set<ModelPart> PartsOf(const ModelConfig& config) {
  const int64_t layers = config.encoder_layers + config.layers;
  return PartsOf(StageParameterSpecs(config, {0, layers, true, true}));
}

TEST(ModelPartTest, EveryParameterOfEveryModelHasOne) {
  using enum ModelPart;
  const std::set<ModelPart> dense = {kEmbedding, kAttention, kFeedForward, kNorms, kHead};
  EXPECT_EQ(PartsOf(SmallConfig(DataType::kFloat32)), dense);
  EXPECT_EQ(PartsOf(SmallT5Config(DataType::kFloat32)), dense);
  const auto with_experts = PartsOf(SmallSharedExpertConfig(DataType::kFloat32));
  for (const ModelPart part : {kExperts, kRouter, kFeedForward}) EXPECT_TRUE(with_experts.contains(part));
  for (const auto& config : {SmallLlamaConfig(DataType::kFloat32), SmallExpertsConfig(DataType::kFloat32),
                             SmallGemmaConfig(DataType::kFloat32), SmallOlmoConfig(DataType::kFloat32)}) {
    EXPECT_TRUE(PartsOf(config).contains(kNorms));
  }
}

TEST(ModelPartTest, ANormIsOneWhereverItStands) {
  EXPECT_EQ(PartOf("layers.3.attention.query_norm.weight"), ModelPart::kNorms);
  EXPECT_EQ(PartOf("layers.3.ffn_output_norm.bias"), ModelPart::kNorms);
  EXPECT_EQ(PartOf("final_norm.weight"), ModelPart::kNorms);
}

TEST(ModelPartTest, AdaptersAreOfThePartThatTheyAreAddedTo) {
  EXPECT_EQ(PartOf("decoder.1.cross.query.lora_a.weight"), ModelPart::kAttention);
  EXPECT_EQ(PartOf("layers.0.ffn.up.lora_b.weight"), ModelPart::kFeedForward);
}

TEST(ModelPartTest, SharedExpertsAreFeedForwardAsDenseOnesAre) {
  EXPECT_EQ(PartOf("layers.0.ffn.shared.up.weight"), ModelPart::kFeedForward);
  EXPECT_EQ(PartOf("layers.0.ffn.shared_gate.weight"), ModelPart::kFeedForward);
  EXPECT_EQ(PartOf("layers.0.ffn.experts.7.up.weight"), ModelPart::kExperts);
}

TEST(ModelPartTest, OtherNamesHaveNone) { EXPECT_EQ(PartOf("a"), ModelPart::kNone); }

}  // namespace
}  // namespace penstock::worker
