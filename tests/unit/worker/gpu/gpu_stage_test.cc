// Stages on a GPU against the plain implementation on CPU.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/worker/model_testing.h"
#include "worker/model/token_batch.h"
#include "worker/model/transformer_stage.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kSeed = 11;

const std::vector<TestSample>& Samples() {
  static const auto& samples = *new std::vector<TestSample>{{0, 17}, {9, 5}, {3, 30}, {0, 2}};
  return samples;
}

// Loss and gradients of the whole model as one stage on the GPU, brought to the CPU.
Result RunOnGpu(const ModelConfig& config, Layout layout, int32_t full) {
  const MicroBatch shape = MakeMicroBatch(config, Samples(), layout);
  auto stage =
      MakeTransformerStage(config, {.first_layer = 0, .layers = config.layers, .first = true, .last = true},
                           kSeed, at::Device(at::kCUDA, 0));
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return {};
  (*stage)->ZeroGradients();
  const auto tokens =
      MakeTokenBatch(shape, MakeTokens(Samples(), config.vocab), config,
                     {.source = true, .target = true, .loss = true}, at::Device(at::kCUDA, 0));
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  auto forward = (*stage)->Forward(shape, *tokens, {}, {.full = full}, CountLossTokens(config, Samples()));
  EXPECT_TRUE(forward.ok()) << forward.status();
  if (!forward.ok()) return {};
  Result result;
  result.loss = forward->output.item<double>();
  const auto gradient = (*stage)->Backward(*std::move(forward), {});
  EXPECT_TRUE(gradient.ok()) << gradient.status();
  for (const NamedParameter& parameter : (*stage)->parameters()) {
    result.gradients[parameter.name] = parameter.gradient.cpu().to(at::kDouble);
  }
  return result;
}

class GpuStage : public testing::TestWithParam<Layout> {};

TEST_P(GpuStage, EqualsThePlainImplementationInFloat64) {
  const ModelConfig config = SmallConfig(DataType::kFloat64);
  EXPECT_LT(
      RelativeDifference(RunOnGpu(config, GetParam(), 0), PlainModel(config, kSeed, Samples(), GetParam())),
      1e-9);
}

TEST_P(GpuStage, RecomputeChangesNothingBeyondRounding) {
  const ModelConfig config = SmallConfig(DataType::kFloat64);
  EXPECT_LT(RelativeDifference(RunOnGpu(config, GetParam(), static_cast<int32_t>(config.layers)),
                               RunOnGpu(config, GetParam(), 0)),
            1e-9);
}

// The packed layout goes through flash attention here.
TEST_P(GpuStage, IsCloseInBFloat16) {
  const ModelConfig config = SmallConfig(DataType::kBFloat16);
  EXPECT_LT(
      RelativeDifference(RunOnGpu(config, GetParam(), 0), PlainModel(config, kSeed, Samples(), GetParam())),
      0.1);
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuStage, testing::Values(Layout::kPadded, Layout::kPacked));

}  // namespace
}  // namespace penstock::worker
