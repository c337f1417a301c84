#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/model_testing.h"
#include "worker/model/transformer_stage.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 11;
const std::vector<TestSample> kSamples = {{3, 4}, {0, 9}, {5, 4}, {2, 1}, {0, 17}};

Result RunOnce(DataType type, int64_t stages, Layout layout, int32_t full) {
  TestPipeline pipeline(SmallConfig(type), kSeed, stages);
  pipeline.Run(kSamples, layout, {.full = full}, CountLossTokens(kSamples));
  return pipeline.result();
}

class EveryLayout : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout, ::testing::Values(Layout::kPadded, Layout::kPacked),
                         [](const auto& info) {
                           return info.param == Layout::kPadded ? "Padded" : "Packed";
                         });

TEST_P(EveryLayout, EqualsThePlainImplementation) {
  const Result plain = PlainGpt(SmallConfig(DataType::kFloat64), kSeed, kSamples);
  EXPECT_LT(RelativeDifference(RunOnce(DataType::kFloat64, 1, GetParam(), 0), plain), 1e-12);
  EXPECT_LT(RelativeDifference(RunOnce(DataType::kFloat32, 1, GetParam(), 0), plain), 1e-4);
  EXPECT_LT(RelativeDifference(RunOnce(DataType::kBFloat16, 1, GetParam(), 0), plain), 0.1);
}

TEST_P(EveryLayout, EqualsItsSamplesOneByOne) {
  TestPipeline pipeline(SmallConfig(DataType::kFloat64), kSeed, 1);
  for (const TestSample& sample : kSamples) pipeline.Run({sample}, GetParam(), {}, CountLossTokens(kSamples));
  EXPECT_LT(RelativeDifference(RunOnce(DataType::kFloat64, 1, GetParam(), 0), pipeline.result()), 1e-12);
}

TEST_P(EveryLayout, DoesNotDependOnTheSplitIntoStages) {
  const Result whole = RunOnce(DataType::kFloat64, 1, GetParam(), 0);
  for (const int64_t stages : {2, 4}) {
    EXPECT_TRUE(SameBits(RunOnce(DataType::kFloat64, stages, GetParam(), 0), whole)) << stages << " stages";
  }
}

TEST_P(EveryLayout, RecomputeGivesTheSameBits) {
  for (const DataType type : {DataType::kFloat64, DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t stages : {1, 2}) {
      const Result kept = RunOnce(type, stages, GetParam(), 0);
      for (int32_t layers = 1; layers <= 4 / stages; ++layers) {
        EXPECT_TRUE(SameBits(RunOnce(type, stages, GetParam(), layers), kept)) << layers << " of " << stages;
      }
    }
  }
}

TEST(GptStage, GradientsAreTheSlopesOfTheLoss) {
  TestPipeline pipeline(SmallConfig(DataType::kFloat64), kSeed, 1);
  const double loss_tokens = CountLossTokens(kSamples);
  pipeline.Run(kSamples, Layout::kPacked, {}, loss_tokens);
  const Result result = pipeline.result();
  const auto loss = [&] {
    const double before = pipeline.result().loss;
    pipeline.Run(kSamples, Layout::kPacked, {}, loss_tokens);
    return pipeline.result().loss - before;
  };
  constexpr double kStep = 1e-5;
  for (const NamedParameter& parameter : pipeline.stage(0).parameters()) {
    const at::Tensor element = parameter.value.detach().flatten()[3];
    element.add_(kStep);
    const double above = loss();
    element.sub_(2 * kStep);
    const double below = loss();
    element.add_(kStep);
    const double slope = (above - below) / (2 * kStep);
    EXPECT_NEAR(result.gradients.at(parameter.name).flatten()[3].item<double>(), slope, 1e-8)
        << parameter.name;
  }
}

TEST(GptStage, ZeroGradientsStartsANewIteration) {
  TestPipeline pipeline(SmallConfig(DataType::kFloat32), kSeed, 1);
  pipeline.Run(kSamples, Layout::kPacked, {}, CountLossTokens(kSamples));
  const Result first = pipeline.result();
  pipeline.stage(0).ZeroGradients();
  pipeline.Run(kSamples, Layout::kPacked, {}, CountLossTokens(kSamples));
  Result second = pipeline.result();
  second.loss -= first.loss;
  EXPECT_TRUE(SameBits(second, first));
}

TEST(GptStage, GradientsOfBFloat16AreSummedInFloat32) {
  TestPipeline pipeline(SmallConfig(DataType::kBFloat16), kSeed, 1);
  for (int i = 0; i < 512; ++i) pipeline.Run({{2, 3}}, Layout::kPacked, {}, 3);
  TestPipeline once(SmallConfig(DataType::kBFloat16), kSeed, 1);
  once.Run({{2, 3}}, Layout::kPacked, {}, 3);
  Result many = pipeline.result();
  many.loss /= 512;
  for (auto& [name, gradient] : many.gradients) {
    EXPECT_EQ(gradient.scalar_type(), at::kFloat) << name;
    gradient.div_(512);
  }
  EXPECT_LT(RelativeDifference(many, once.result()), 1e-5);
}

TEST(GptStage, RejectsAModelThatCannotBe) {
  ModelConfig config = SmallConfig(DataType::kFloat32);
  config.heads = 5;
  const auto heads = MakeTransformerStage(config, {0, 4, true, true}, kSeed, at::kCPU);
  EXPECT_EQ(heads.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(heads.status().message()), HasSubstr("model.heads: 5"));
  const auto range =
      MakeTransformerStage(SmallConfig(DataType::kFloat32), {3, 2, false, true}, kSeed, at::kCPU);
  EXPECT_THAT(std::string(range.status().message()), HasSubstr("layers 3 to 4, but the model has 4"));
}

TEST(GptStage, RejectsASampleLongerThanItsPositions) {
  auto stage = MakeTransformerStage(SmallConfig(DataType::kFloat32), {0, 4, true, true}, kSeed, at::kCPU);
  const auto forward = (*stage)->Forward(MakeMicroBatch({{20, 13}}, Layout::kPacked), {}, {}, {}, 1);
  EXPECT_EQ(forward.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(forward.status().message()),
              HasSubstr("length 33, but model.max_sequence_length is 32"));
}

TEST(GptStage, RejectsAnInputAndAGradientOfAWrongShape) {
  auto stage = MakeTransformerStage(SmallConfig(DataType::kFloat32), {1, 2, false, false}, kSeed, at::kCPU);
  const MicroBatch shape = MakeMicroBatch({{2, 3}}, Layout::kPadded);
  const auto wrong = (*stage)->Forward(shape, {}, at::zeros({1, 4, 24}), {}, 1);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("expected shape [1, 5, 24], found [1, 4, 24]"));
  auto forward = (*stage)->Forward(shape, {}, at::zeros({1, 5, 24}), {}, 1);
  const auto gradient = (*stage)->Backward(*forward, {});
  EXPECT_THAT(std::string(gradient.status().message()), HasSubstr("expected shape [1, 5, 24], found [none]"));
}

TEST(GptStage, RunsBackwardOnceOnly) {
  auto stage = MakeTransformerStage(SmallConfig(DataType::kFloat32), {1, 2, false, false}, kSeed, at::kCPU);
  auto forward =
      (*stage)->Forward(MakeMicroBatch({{2, 3}}, Layout::kPadded), {}, at::zeros({1, 5, 24}), {.full = 1}, 1);
  ASSERT_TRUE((*stage)->Backward(*forward, at::ones({1, 5, 24})).ok());
  const auto again = (*stage)->Backward(*forward, at::ones({1, 5, 24}));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::worker
