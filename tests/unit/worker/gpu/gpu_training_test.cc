// Training steps on a GPU, in bfloat16, beside the same ones on CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "tests/unit/worker/model_testing.h"
#include "worker/model/token_batch.h"
#include "worker/model/transformer_stage.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

constexpr size_t kSteps = 6;

const std::vector<TestSample>& LearnedSamples() {
  static const auto& samples = *new std::vector<TestSample>{{0, 17}, {9, 5}, {3, 28}, {0, 2}};
  return samples;
}

TrainingConfig LearningConfig() {
  TrainingConfig config;
  config.learning_rate.peak = config.learning_rate.minimum = 3e-3;
  config.weight_decay = 0.1;
  return config;
}

// Of each step; fewer where one failed.
std::vector<double> Losses(const ModelConfig& config, Layout layout, at::Device device) {
  const MicroBatch shape = MakeMicroBatch(config, LearnedSamples(), layout);
  auto stage =
      MakeTransformerStage(config, {.first_layer = 0, .layers = config.layers, .first = true, .last = true},
                           /*seed=*/11, device);
  EXPECT_TRUE(stage.ok()) << stage.status();
  const auto staged = MakeTokenBatch(shape, MakeTokens(LearnedSamples(), config.vocab), config,
                                     {.source = true, .target = true, .loss = true}, device);
  EXPECT_TRUE(staged.ok()) << staged.status();
  if (!stage.ok() || !staged.ok()) return {};
  const auto tokens = ToDevice(*staged, device);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  if (!tokens.ok()) return {};
  auto optimizer = AdamW::Create(LearningConfig(), {&(*stage)->flat_parameters()});
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  if (!optimizer.ok()) return {};
  std::vector<double> losses;
  for (uint64_t step = 0; step < kSteps; ++step) {
    (*stage)->ZeroGradients();
    auto forward = (*stage)->Forward(shape, *tokens, {}, {}, CountLossTokens(config, LearnedSamples()), {});
    EXPECT_TRUE(forward.ok()) << forward.status();
    if (!forward.ok()) return losses;
    losses.push_back(forward->output.item<double>());
    EXPECT_TRUE((*stage)->Backward(*std::move(forward), {}, {}, {}).ok());
    EXPECT_TRUE((*optimizer)->Step(step, /*gradient_scale=*/1).ok());
  }
  return losses;
}

class GpuTraining : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPUS(1); }

  static void ExpectStepsOfTheCpu(const ModelConfig& config) {
    const std::vector<double> gpu = Losses(config, GetParam(), Gpu(0));
    const std::vector<double> cpu = Losses(config, GetParam(), at::kCPU);
    ASSERT_EQ(gpu.size(), kSteps);
    ASSERT_EQ(cpu.size(), kSteps);
    for (size_t step = 0; step < kSteps; ++step)
      EXPECT_NEAR(gpu[step] / cpu[step], 1, 0.05) << "step " << step;
    EXPECT_LT(gpu.back(), gpu.front()) << "it learns the samples";
  }
};

TEST_P(GpuTraining, AGptLearnsInBFloat16AsOnCpu) { ExpectStepsOfTheCpu(SmallConfig(DataType::kBFloat16)); }

TEST_P(GpuTraining, AT5LearnsInBFloat16AsOnCpu) { ExpectStepsOfTheCpu(SmallT5Config(DataType::kBFloat16)); }

INSTANTIATE_TEST_SUITE_P(Layouts, GpuTraining, testing::Values(Layout::kPadded, Layout::kPacked));

}  // namespace
}  // namespace penstock::worker
