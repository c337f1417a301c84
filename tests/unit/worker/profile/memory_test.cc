#include "worker/profile/memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/memory/tensor_memory.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/transformer_stage.h"
#include "worker/profile/measured_shapes.h"

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
    EXPECT_EQ(DecoderParameterBytes(config), 4 * Elements(config, {1, 1, false, false}));
    EXPECT_EQ(HeadParameterBytes(config), 4 * Elements(config, {0, 0, false, true}));
    EXPECT_EQ(EmbeddingParameterBytes(config), 4 * Elements(config, {0, 0, true, false}));
  }
}

TEST(Memory, CountsTheParametersOfT5) {
  for (const FeedForward feed_forward : {FeedForward::kRelu, FeedForward::kGatedGelu}) {
    ModelConfig config = Config(DataType::kFloat32);
    config.layers = 4;
    config.encoder_layers = 2;
    config.architecture = Architecture::kT5;
    config.feed_forward = feed_forward;
    const double bias = 4.0 * 32 * 3;
    EXPECT_EQ(EncoderParameterBytes(config), 4 * Elements(config, {0, 1, false, false}) - bias);
    EXPECT_EQ(DecoderParameterBytes(config), 4 * Elements(config, {3, 1, false, false}) - bias);
    EXPECT_EQ(HeadParameterBytes(config), 4 * Elements(config, {4, 0, false, true}));
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

// What a stage of one layer really keeps between its passes.
double StoredBytes(const ModelConfig& config, int64_t layer, const MicroBatch& shape,
                   const LayerRecompute& recompute) {
  const StageRange range = {layer, 1, false, false};
  const auto stage = *MakeTransformerStage(config, range, /*seed=*/1, at::kCPU);
  const int64_t before = TensorBytes(at::kCPU);
  const at::Tensor input = at::ones(BoundaryShape(shape, config, layer));
  auto forward = *stage->Forward(shape, {}, input, recompute, 1);
  forward.output.reset();
  return static_cast<double>(TensorBytes(at::kCPU) - before);
}

double Of(const TokenBytes& bytes, const MicroBatch& shape) {
  const TokenFigures figures = FiguresOf(shape);
  return bytes.source * figures.source + bytes.target * figures.target;
}

TEST(Memory, IsWhatStagesKeep) {
  CountCpuTensors();
  for (const Architecture architecture : {Architecture::kGpt, Architecture::kT5}) {
    ModelConfig config = Config(DataType::kFloat32);
    config.layers = 4;
    config.architecture = architecture;
    config.encoder_layers = architecture == Architecture::kT5 ? 2 : 0;
    config.feed_forward = architecture == Architecture::kT5 ? FeedForward::kRelu : FeedForward::kGelu;
    for (const int64_t layer : {0, 3}) {
      for (const MicroBatch& shape : {PaddedShape(4, {24, 32}), PackedShape({{8, 8}, {32, 20}, {3, 30}})}) {
        MicroBatch gpt = shape;
        if (architecture == Architecture::kGpt) gpt.input_tokens.assign(gpt.input_tokens.size(), 0);
        const bool encoder = architecture == Architecture::kT5 && layer == 0;
        const LayerBytes bytes = encoder ? EncoderLayerBytes(config) : DecoderLayerBytes(config);
        // A decoder layer's input has the encoder's output beside it, which is no layer's own.
        const double beside = architecture == Architecture::kT5 && !encoder
                                  ? 4.0 * static_cast<double>(config.hidden) * FiguresOf(gpt).source
                                  : 0;
        const double none = StoredBytes(config, layer, gpt, {}) - beside;
        const double selective = StoredBytes(config, layer, gpt, {.selective = 1}) - beside;
        const double full = StoredBytes(config, layer, gpt, {.full = 1}) - beside;
        EXPECT_NEAR(none / Of(bytes.stored_none, gpt), 1, 0.01);
        EXPECT_NEAR(selective / Of(bytes.stored_selective, gpt), 1, 0.01);
        EXPECT_NEAR(full / Of(bytes.stored_full, gpt), 1, 0.01);
      }
    }
  }
}

TEST(Memory, RecomputeKeepsTheInputAlone) {
  const LayerBytes bytes = DecoderLayerBytes(Config(DataType::kBFloat16));
  EXPECT_EQ(bytes.stored_full.target, 48);
  EXPECT_GT(bytes.stored_none.target, 5 * bytes.stored_full.target);
  EXPECT_LT(bytes.stored_selective.target, bytes.stored_none.target);
}

}  // namespace
}  // namespace penstock::worker
