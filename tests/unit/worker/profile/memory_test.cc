#include "worker/profile/memory.h"

#include <gtest/gtest.h>

#include "worker/model/parameters.h"

namespace penstock::worker {
namespace {

ModelConfig Config(DataType type) {
  return {.layers = 3,
          .hidden = 24,
          .heads = 3,
          .attention_inner = 12,
          .ffn = 40,
          .vocab = 29,
          .max_sequence_length = 32,
          .dtype = type};
}

double Elements(const ModelConfig& config, const StageRange& range) {
  double elements = 0;
  for (const ParameterSpec& spec : StageParameterSpecs(config, range)) {
    double size = 1;
    for (const int64_t extent : spec.shape) size *= static_cast<double>(extent);
    elements += size;
  }
  return elements;
}

TEST(Memory, CountsTheParametersThatStagesHave) {
  for (int64_t inner : {0, 12}) {
    ModelConfig config = Config(DataType::kFloat32);
    config.attention_inner = inner;
    EXPECT_EQ(LayerParameterBytes(config), 4 * Elements(config, {1, 1, false, false}));
    EXPECT_EQ(HeadParameterBytes(config), 4 * Elements(config, {0, 0, false, true}));
    EXPECT_EQ(EmbeddingParameterBytes(config), 4 * Elements(config, {0, 0, true, false}));
  }
}

TEST(Memory, CountsStateOfTheOptimizer) {
  EXPECT_EQ(StateBytesPerParameterByte(DataType::kFloat32), 4);
  EXPECT_EQ(StateBytesPerParameterByte(DataType::kFloat64), 4);
  // Parameter 2, gradient 4, master 4, moments 8 bytes.
  EXPECT_EQ(StateBytesPerParameterByte(DataType::kBFloat16), 9);
  EXPECT_EQ(OptimizerBytesPerParameterByte(DataType::kBFloat16), 6);
}

TEST(Memory, RecomputeKeepsTheInputAlone) {
  const TokenBytes bytes = LayerTokenBytes(Config(DataType::kBFloat16));
  EXPECT_EQ(bytes.stored_full, 48);
  EXPECT_GT(bytes.stored_none, 5 * bytes.stored_full);
}

}  // namespace
}  // namespace penstock::worker
