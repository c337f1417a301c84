// Stages on a GPU against the plain implementation on CPU.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "tests/unit/worker/model_testing.h"
#include "worker/model/token_batch.h"
#include "worker/model/transformer_stage.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kSeed = 11;

const std::vector<TestSample>& Samples() {
  static const auto& samples = *new std::vector<TestSample>{{0, 17}, {9, 5}, {3, 28}, {0, 2}};
  return samples;
}

// Loss and gradients of the whole model as one stage on the GPU, brought to the CPU.
Result RunOnGpu(const ModelConfig& config, Layout layout, const LayerRecompute& recompute,
                const std::vector<TestSample>& samples = Samples()) {
  const MicroBatch shape = MakeMicroBatch(config, samples, layout);
  auto stage =
      MakeTransformerStage(config, {.first_layer = 0, .layers = config.layers, .first = true, .last = true},
                           kSeed, at::Device(at::kCUDA, 0));
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return {};
  (*stage)->ZeroGradients();
  const at::Device gpu(at::kCUDA, 0);
  const auto staged = MakeTokenBatch(shape, MakeTokens(samples, config.vocab), config,
                                     {.source = true, .target = true, .loss = true}, gpu);
  EXPECT_TRUE(staged.ok()) << staged.status();
  if (!staged.ok()) return {};
  const auto tokens = ToDevice(*staged, gpu);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  auto forward = (*stage)->Forward(shape, *tokens, {}, recompute, CountLossTokens(config, samples), {});
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) return {};
  Result result;
  result.loss = forward->output.item<double>();
  const auto gradient = (*stage)->Backward(*std::move(forward), {}, {}, {});
  EXPECT_TRUE(gradient.ok()) << gradient.status();
  for (const NamedParameter& parameter : (*stage)->parameters()) {
    result.gradients[parameter.name] = parameter.gradient.cpu().to(at::kDouble);
  }
  return result;
}

// Architecture and layout.
class GpuStage : public testing::TestWithParam<std::tuple<Architecture, Layout>> {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPUS(1); }

  static ModelConfig Config(DataType type) {
    return std::get<0>(GetParam()) == Architecture::kT5 ? SmallT5Config(type) : SmallConfig(type);
  }
  static Layout layout() { return std::get<1>(GetParam()); }
};

TEST_P(GpuStage, EqualsThePlainImplementationInFloat64) {
  const ModelConfig config = Config(DataType::kFloat64);
  const Result plain = PlainModel(config, kSeed, Samples(), layout());
  EXPECT_LT(RelativeDifference(RunOnGpu(config, layout(), {}), plain), 1e-9);
}

TEST_P(GpuStage, RecomputeChangesNothingBeyondRounding) {
  const ModelConfig config = Config(DataType::kFloat64);
  const Result kept = RunOnGpu(config, layout(), {});
  EXPECT_LT(RelativeDifference(RunOnGpu(config, layout(), {.full = 4}), kept), 1e-9);
  EXPECT_LT(RelativeDifference(RunOnGpu(config, layout(), {.selective = 4}), kept), 1e-9);
}

TEST_P(GpuStage, IsCloseInBFloat16) {
  const ModelConfig config = Config(DataType::kBFloat16);
  const Result plain = PlainModel(config, kSeed, Samples(), layout());
  EXPECT_NEAR(RunOnGpu(config, layout(), {}).loss / plain.loss, 1, 0.02);
}

// Of 16-bit types other kernels compute attention. All samples have input, so that packed cross-attention is
// one call. A T5 does not divide its scores by the root of a head's width, so that more is rounded off.
TEST_P(GpuStage, GradientsInBFloat16AreCloseToThoseInFloat64) {
  const std::vector<TestSample> samples = {{4, 17}, {9, 5}, {3, 28}, {7, 2}};
  const auto run = [&](DataType type) { return RunOnGpu(Config(type), layout(), {}, samples); };
  const double most = std::get<0>(GetParam()) == Architecture::kT5 ? 0.4 : 0.15;
  EXPECT_LT(RelativeDifference(run(DataType::kBFloat16), run(DataType::kFloat64)), most);
}

// The scores' factor is not the root of a head's width.
TEST(GpuLlama, GradientsInBFloat16AreCloseToThoseInFloat64) {
  PENSTOCK_NEEDS_GPUS(1);
  for (const Layout layout : {Layout::kPadded, Layout::kPacked, Layout::kConcatenated}) {
    const auto run = [&](DataType type) {
      ModelConfig config = SmallLlamaConfig(type);
      config.multipliers.attention = 1.5;
      return RunOnGpu(config, layout, {});
    };
    EXPECT_LT(RelativeDifference(run(DataType::kBFloat16), run(DataType::kFloat64)), 0.15);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuStage,
                         testing::Combine(testing::Values(Architecture::kGpt, Architecture::kT5),
                                          testing::Values(Layout::kPadded, Layout::kPacked,
                                                          Layout::kConcatenated)));

}  // namespace
}  // namespace penstock::worker
