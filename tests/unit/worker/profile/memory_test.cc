#include "worker/profile/memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

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

TEST(Memory, CountsTheParametersOfLayersWithExpertsAndWithout) {
  ModelConfig config = Config(DataType::kFloat32);
  config.feed_forward_biases = Biases::kNone;
  config.experts = 4;
  config.experts_per_token = 2;
  config.dense_layers = {1};
  config.dense_ffn = 56;
  EXPECT_EQ(DecoderParameterBytes(config), 4 * Elements(config, {0, 1, false, false}));
  EXPECT_EQ(DenseParameterBytes(config), 4 * Elements(config, {1, 1, false, false}));
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

// What a stage of one layer really keeps between its passes, and what exists while they run.
struct Kept {
  double forward = 0;
  double put_aside = 0;
  double backward_peak = 0;
};

Kept Keep(const ModelConfig& config, int64_t layer, const MicroBatch& shape, const LayerRecompute& recompute,
          bool split) {
  const auto stage = *MakeTransformerStage(config, {layer, 1, false, false}, /*seed=*/1, at::kCPU);
  const at::Tensor gradient = at::ones(BoundaryShape(shape, config, layer + 1));
  const int64_t before = TensorBytes(at::kCPU);
  const auto since = [before](int64_t bytes) { return static_cast<double>(bytes - before); };
  Kept kept;
  const TokenBatch staged = *MakeTokenBatch(shape, {}, config, TokenNeeds(), at::kCPU);
  auto forward = *stage->Forward(shape, *ToDevice(staged, at::kCPU),
                                 at::ones(BoundaryShape(shape, config, layer)), recompute, 1, {});
  forward.output.reset();
  kept.forward = since(TensorBytes(at::kCPU));
  ResetPeakTensorBytes(at::kCPU);
  SplitBackward result;
  if (split) {
    result = *stage->BackwardInput(std::move(forward), gradient, {});
  } else {
    result.input_gradient = *stage->Backward(std::move(forward), gradient, {}, {});
  }
  const auto gradient_bytes = static_cast<double>(result.input_gradient.nbytes());
  kept.backward_peak = since(PeakTensorBytes(at::kCPU)) - gradient_bytes;
  kept.put_aside = since(TensorBytes(at::kCPU)) - gradient_bytes;
  return kept;
}

double Of(const TokenBytes& bytes, const MicroBatch& shape) {
  const TokenFigures figures = FiguresOf(shape);
  return bytes.source * figures.source + bytes.target * figures.target;
}

// With the parts of a Llama: a GPT with heads in groups of three.
void SetLlamaParts(ModelConfig& config) {
  config.norm = Norm::kRms;
  config.position = Position::kRotary;
  config.heads = 6;
  config.key_value_heads = 2;
  config.attention_biases = config.feed_forward_biases = Biases::kNone;
  config.feed_forward = FeedForward::kGatedSilu;
}

struct MemoryCase {
  Architecture architecture;
  FeedForward feed_forward;
  int64_t layer;
  bool llama = false;
  bool experts = false;
  bool gemma = false;
  bool olmo = false;
  // Adapters of all linear layers alone learn.
  bool adapted = false;
  bool shared_expert = false;
  // The layer has no experts, and a width of its own, in a model whose other layers have a shared one too.
  bool dense = false;
};

// A Llama with windows, capped scores, and norms on both sides of its parts.
void SetGemmaParts(ModelConfig& config) {
  SetLlamaParts(config);
  config.feed_forward = FeedForward::kGatedGelu;
  config.head_norms = true;
  config.offset_norms = true;
  config.norm_placement = NormPlacement::kBoth;
  config.attention_window = 6;
  config.score_cap = 30;
  config.logit_cap = 30;
}

// A Llama with norms behind its parts alone, and over all heads.
void SetOlmoParts(ModelConfig& config) {
  SetLlamaParts(config);
  config.norm_placement = NormPlacement::kAfter;
  config.joint_head_norms = true;
}

void SetAdapters(ModelConfig& config) {
  config.adapters = {.rank = 6,
                     .scale = 2,
                     .targets = {LinearLayer::kQuery, LinearLayer::kKey, LinearLayer::kValue,
                                 LinearLayer::kOutput, LinearLayer::kUp, LinearLayer::kDown}};
}

// The same with norms of queries and keys, and experts.
void SetExperts(ModelConfig& config) {
  SetLlamaParts(config);
  config.head_norms = true;
  config.experts = 5;
  config.experts_per_token = 2;
}

// The same with norms over all heads, clipped heads, a gated expert that all tokens share, and losses of
// routers.
void SetSharedExpert(ModelConfig& config) {
  SetExperts(config);
  config.head_norms = false;
  config.joint_head_norms = true;
  config.query_key_value_clip = 1;
  config.shared_expert_ffn = 96;
  config.gated_shared_expert = true;
  config.router_balance_loss = 0.1;
  config.router_z_loss = 0.1;
}

class LayerMemory : public ::testing::TestWithParam<MemoryCase> {
 protected:
  void SetUp() override {
    CountCpuTensors();
    config_ = Config(DataType::kFloat32);
    config_.layers = 4;
    config_.hidden = 48;
    config_.attention_inner = 36;
    config_.ffn = 160;
    config_.architecture = GetParam().architecture;
    config_.feed_forward = GetParam().feed_forward;
    if (IsT5()) config_.encoder_layers = 2;
    if (GetParam().llama) SetLlamaParts(config_);
    if (GetParam().experts) SetExperts(config_);
    if (GetParam().shared_expert || GetParam().dense) SetSharedExpert(config_);
    if (GetParam().dense) config_.dense_layers = {GetParam().layer};
    if (GetParam().dense) config_.dense_ffn = 224;
    if (GetParam().gemma) SetGemmaParts(config_);
    if (GetParam().olmo) SetOlmoParts(config_);
    if (GetParam().adapted) SetAdapters(config_);
  }

  bool IsT5() const { return GetParam().architecture == Architecture::kT5; }

  std::vector<MicroBatch> Shapes() const {
    const auto source = [this](int64_t length) { return IsT5() ? length : 0; };
    std::vector<MicroBatch> shapes = {
        PaddedShape(4, {source(24), 32}),
        PackedShape({{source(8), 8}, {source(32), 20}, {source(3), 30}, {source(30), 32}})};
    for (MicroBatch& shape : shapes) shape.batch_tokens = 128;
    return shapes;
  }

  LayerBytes Bytes() const {
    if (GetParam().dense) return DenseLayerBytes(config_);
    return IsT5() && GetParam().layer < 2 ? EncoderLayerBytes(config_) : DecoderLayerBytes(config_);
  }

  // A decoder layer's input has the encoder's output beside it, which is no layer's own.
  double Beside(const MicroBatch& shape) const {
    const bool decoder = IsT5() && GetParam().layer >= 2;
    return decoder ? 4.0 * static_cast<double>(config_.hidden) * FiguresOf(shape).source : 0;
  }

  ModelConfig config_;
};

INSTANTIATE_TEST_SUITE_P(
    Layers, LayerMemory,
    ::testing::Values(MemoryCase{Architecture::kGpt, FeedForward::kGelu, 1},
                      MemoryCase{Architecture::kGpt, FeedForward::kGatedSilu, 1, true},
                      MemoryCase{Architecture::kGpt, FeedForward::kGatedSilu, 1, false, true},
                      MemoryCase{.architecture = Architecture::kGpt,
                                 .feed_forward = FeedForward::kGatedSilu,
                                 .layer = 1,
                                 .shared_expert = true},
                      MemoryCase{.architecture = Architecture::kGpt,
                                 .feed_forward = FeedForward::kGatedSilu,
                                 .layer = 1,
                                 .dense = true},
                      MemoryCase{Architecture::kGpt, FeedForward::kGatedGelu, 1, false, false, true},
                      MemoryCase{Architecture::kGpt, FeedForward::kGatedSilu, 1, false, false, false, true},
                      MemoryCase{Architecture::kGpt, FeedForward::kGelu, 1, false, false, false, false, true},
                      MemoryCase{Architecture::kGpt, FeedForward::kGatedSilu, 1, true, false, false, false,
                                 true},
                      MemoryCase{Architecture::kT5, FeedForward::kRelu, 3, false, false, false, false, true},
                      MemoryCase{Architecture::kT5, FeedForward::kRelu, 0},
                      MemoryCase{Architecture::kT5, FeedForward::kRelu, 3},
                      MemoryCase{Architecture::kT5, FeedForward::kGatedGelu, 0},
                      MemoryCase{Architecture::kT5, FeedForward::kGatedGelu, 3}));

TEST_P(LayerMemory, IsWhatStagesKeep) {
  const LayerBytes bytes = Bytes();
  for (const MicroBatch& shape : Shapes()) {
    const auto kept = [&](const LayerRecompute& recompute) {
      return Keep(config_, GetParam().layer, shape, recompute, /*split=*/false).forward - Beside(shape);
    };
    EXPECT_LE(kept({}) / Of(bytes.stored_none, shape), 1.01);
    EXPECT_NEAR(kept({.selective = 1}) / Of(bytes.stored_selective, shape), 1, 0.01);
    EXPECT_NEAR(kept({.full = 1}) / Of(bytes.stored_full, shape), 1, 0.01);
    const double aside = Keep(config_, GetParam().layer, shape, {}, /*split=*/true).put_aside - Beside(shape);
    EXPECT_LE(aside / Of(bytes.stored_none, shape), 1.01);
    EXPECT_GE(std::max(aside, kept({})) / Of(bytes.stored_none, shape), 0.9);
  }
}

// What a layer that keeps so much takes beside it while it runs backward (execution.md, section 8): nothing
// that it keeps is made again.
double PeakBeside(const LayerBytes& bytes, const TokenBytes& stored, const MicroBatch& shape) {
  return Of(bytes.peak, shape) - (Of(stored, shape) - Of(bytes.stored_full, shape));
}

// The same of one that puts products for weights aside, beside what it keeps and puts aside.
double SplitPeakBeside(const LayerBytes& bytes, const MicroBatch& shape) {
  return std::max(PeakBeside(bytes, bytes.stored_none, shape), Of(bytes.split_backward_peak, shape));
}

// Of a dense layer without scores that are kept: what is left is the gradients of its input and output, which
// are no part of it.
TEST_P(LayerMemory, PeaksOfDenseLayersAreNotFarBelow) {
  if (IsT5() || config_.experts > 0 || GetParam().gemma) GTEST_SKIP() << "has parts that few shapes fill";
  const LayerBytes bytes = Bytes();
  for (const MicroBatch& shape : Shapes()) {
    const auto peak = [&](bool split) {
      return Keep(config_, GetParam().layer, shape, {.full = 1}, split).backward_peak;
    };
    EXPECT_GE(peak(false),
              0.84 * (Of(bytes.stored_full, shape) + PeakBeside(bytes, bytes.stored_full, shape)));
    EXPECT_GE(peak(true), 0.85 * (Of(bytes.stored_none, shape) + SplitPeakBeside(bytes, shape)));
  }
}

TEST_P(LayerMemory, PeaksNoHigherThanItSays) {
  const LayerBytes bytes = Bytes();
  for (const MicroBatch& shape : Shapes()) {
    for (const bool split : {false, true}) {
      const auto peak = [&](const LayerRecompute& recompute) {
        return Keep(config_, GetParam().layer, shape, recompute, split).backward_peak - Beside(shape);
      };
      const auto promised = [&](const TokenBytes& stored) {
        return split ? Of(bytes.stored_none, shape) + SplitPeakBeside(bytes, shape)
                     : Of(stored, shape) + PeakBeside(bytes, stored, shape);
      };
      EXPECT_LE(peak({}), 1.01 * promised(bytes.stored_none));
      EXPECT_LE(peak({.selective = 1}), 1.01 * promised(bytes.stored_selective));
      EXPECT_LE(peak({.full = 1}), 1.01 * promised(bytes.stored_full));
    }
  }
}

TEST(Memory, CountsTheParametersOfALlama) {
  ModelConfig config = Config(DataType::kFloat32);
  config.attention_inner = 36;
  SetLlamaParts(config);
  for (const Biases biases : {Biases::kNone, Biases::kQueryKeyValue, Biases::kAll}) {
    config.attention_biases = biases;
    EXPECT_EQ(DecoderParameterBytes(config), 4 * Elements(config, {1, 1, false, false}));
  }
  EXPECT_EQ(HeadParameterBytes(config), 4 * Elements(config, {0, 0, false, true}));
  EXPECT_EQ(EmbeddingParameterBytes(config), 4 * Elements(config, {0, 0, true, false}));
}

TEST(Memory, CountsTheParametersOfExperts) {
  ModelConfig config = Config(DataType::kFloat32);
  for (void (*set)(ModelConfig&) : {SetExperts, SetSharedExpert}) {
    config.attention_inner = 36;
    set(config);
    EXPECT_EQ(DecoderParameterBytes(config), 4 * Elements(config, {1, 1, false, false}));
  }
}

TEST(Memory, CountsTheParametersOfNormsBehindPartsAndOverHeads) {
  for (void (*set)(ModelConfig&) : {SetGemmaParts, SetOlmoParts}) {
    ModelConfig config = Config(DataType::kFloat32);
    config.attention_inner = 36;
    set(config);
    EXPECT_EQ(DecoderParameterBytes(config), 4 * Elements(config, {1, 1, false, false}));
    EXPECT_EQ(HeadParameterBytes(config), 4 * Elements(config, {0, 0, false, true}));
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
