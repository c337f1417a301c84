#include "worker/model/transformer_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/worker/model_testing.h"
#include "worker/memory/tensor_memory.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/router_losses.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;
using Options = TestPipeline::Options;

constexpr uint64_t kSeed = 11;
const std::vector<TestSample> kSamples = {{3, 4}, {0, 9}, {5, 4}, {2, 1}, {0, 17}, {5, 4}};
const std::vector<uint32_t> kWhole = {4};

// Before the first tensor: the tests of memory count all of them.
[[maybe_unused]] const bool kCounted = [] {
  CountCpuTensors();
  return true;
}();

// kTied: with a head that is the token embedding, and T5 with one embedding for all.
enum class Family {
  kGpt,
  kT5,
  kGatedT5,
  kLlama,
  kTiedGpt,
  kTiedT5,
  kExperts,
  kGemma,
  kOlmo,
  kSharedExpert,
  kSomeExperts
};

bool IsT5(Family family) {
  return family == Family::kT5 || family == Family::kGatedT5 || family == Family::kTiedT5;
}

ModelConfig ConfigOf(Family family, DataType type) {
  if (family == Family::kLlama) return SmallLlamaConfig(type);
  if (family == Family::kExperts) return SmallExpertsConfig(type);
  if (family == Family::kGemma) return SmallGemmaConfig(type);
  if (family == Family::kOlmo) return SmallOlmoConfig(type);
  if (family == Family::kSharedExpert) return SmallSharedExpertConfig(type);
  if (family == Family::kSomeExperts) return SmallSomeExpertsConfig(type);
  ModelConfig config = IsT5(family) ? SmallT5Config(type) : SmallConfig(type);
  if (family == Family::kGatedT5) config.feed_forward = FeedForward::kGatedGelu;
  config.tied_head = family == Family::kTiedGpt || family == Family::kTiedT5;
  config.tied_embeddings = family == Family::kTiedT5;
  return config;
}

Result RunOnce(const ModelConfig& config, const std::vector<uint32_t>& stages, Layout layout,
               const Options& options = {}) {
  TestPipeline pipeline(config, kSeed, stages);
  pipeline.Run(kSamples, layout, options, CountLossTokens(config, kSamples));
  return pipeline.result();
}

class EveryModel : public ::testing::TestWithParam<std::tuple<Family, Layout>> {
 protected:
  static ModelConfig Config(DataType type) { return ConfigOf(std::get<0>(GetParam()), type); }
  static Layout layout() { return std::get<1>(GetParam()); }
};

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Family, Layout>>& info) {
  const char* const families[] = {"Gpt",     "T5",    "GatedT5", "Llama",        "TiedGpt",    "TiedT5",
                                  "Experts", "Gemma", "Olmo",    "SharedExpert", "SomeExperts"};
  const char* const layouts[] = {"Padded", "Packed", "Concatenated"};
  return std::string(families[static_cast<size_t>(std::get<0>(info.param))]) +
         layouts[static_cast<size_t>(std::get<1>(info.param))];
}

const auto kFamilies = ::testing::Values(Family::kGpt, Family::kT5, Family::kGatedT5, Family::kLlama,
                                         Family::kTiedGpt, Family::kTiedT5, Family::kExperts, Family::kGemma,
                                         Family::kOlmo, Family::kSharedExpert, Family::kSomeExperts);
INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         ::testing::Combine(kFamilies, ::testing::Values(Layout::kPadded, Layout::kPacked,
                                                                         Layout::kConcatenated)),
                         NameOf);

// Two passes for each parameter; of other layouts gradients equal those of the plain implementation.
class GradientsOfEveryModel : public EveryModel {};
INSTANTIATE_TEST_SUITE_P(Models, GradientsOfEveryModel,
                         ::testing::Combine(kFamilies, ::testing::Values(Layout::kPacked)), NameOf);

TEST_P(EveryModel, HasTheSameLossWithoutAPassBackAndNoGradient) {
  const ModelConfig config = Config(DataType::kFloat32);
  const double loss_tokens = CountLossTokens(config, kSamples);
  TestPipeline alone(config, kSeed, {2, 2});
  const double loss = alone.RunForwardAlone(kSamples, layout(), loss_tokens);
  EXPECT_EQ(loss, RunOnce(config, {2, 2}, layout()).loss);
  EXPECT_GT(loss, 0);
  for (const auto& [name, gradient] : alone.result().gradients)
    EXPECT_EQ(gradient.count_nonzero().item<int64_t>(), 0) << name;
}

TEST_P(EveryModel, EqualsThePlainImplementation) {
  const Result plain = PlainModel(Config(DataType::kFloat64), kSeed, kSamples, layout());
  EXPECT_LT(RelativeDifference(RunOnce(Config(DataType::kFloat64), kWhole, layout()), plain), 1e-12);
  EXPECT_LT(RelativeDifference(RunOnce(Config(DataType::kFloat32), kWhole, layout()), plain), 1e-4);
}

TEST_P(EveryModel, IsCloseInBFloat16) {
  const Result plain = PlainModel(Config(DataType::kFloat64), kSeed, kSamples, layout());
  const Result result = RunOnce(Config(DataType::kBFloat16), kWhole, layout());
  EXPECT_NEAR(result.loss / plain.loss, 1, 0.01);
  double error = 0;
  double norm = 0;
  for (const auto& [name, gradient] : plain.gradients) {
    error += (result.gradients.at(name) - gradient).square().sum().item<double>();
    norm += gradient.square().sum().item<double>();
  }
  EXPECT_LT(std::sqrt(error / norm), 0.1);
}

TEST_P(EveryModel, EqualsItsMicroBatchesOneByOne) {
  const ModelConfig config = Config(DataType::kFloat64);
  TestPipeline pipeline(config, kSeed, kWhole);
  for (size_t i = 0; i < kSamples.size(); i += 2) {
    pipeline.Run({kSamples[i], kSamples[i + 1]}, layout(), {.batch_tokens = CountTokens(kSamples)},
                 CountLossTokens(config, kSamples));
  }
  EXPECT_LT(RelativeDifference(RunOnce(config, kWhole, layout()), pipeline.result()), 1e-12);
}

// But for the order in which the gradients of shared parameters are summed.
TEST_P(EveryModel, DoesNotDependOnTheSplitIntoStages) {
  const ModelConfig config = Config(DataType::kFloat64);
  const Result whole = RunOnce(config, kWhole, layout());
  const std::vector<std::vector<uint32_t>> splits = {{2, 2}, {1, 1, 1, 1}, {1, 3},          {3, 1},
                                                     {0, 4}, {4, 0},       {0, 2, 0, 2, 0}, {1, 2, 0, 1}};
  for (const std::vector<uint32_t>& split : splits) {
    const Result cut = RunOnce(config, split, layout());
    const bool shared = config.architecture == Architecture::kT5 || config.tied_head;
    EXPECT_TRUE(shared || SameBits(cut, whole)) << split.size() << " stages";
    EXPECT_LT(RelativeDifference(cut, whole), 1e-14) << split.size() << " stages";
  }
}

TEST_P(EveryModel, RecomputeGivesTheSameBits) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const std::vector<uint32_t> stages = {1, 3};
    const Result kept = RunOnce(Config(type), stages, layout());
    for (const LayerRecompute recompute :
         {LayerRecompute{.full = 1}, LayerRecompute{.full = 3}, LayerRecompute{.selective = 3},
          LayerRecompute{.selective = 1, .full = 1}}) {
      EXPECT_TRUE(SameBits(RunOnce(Config(type), stages, layout(), {.recompute = recompute}), kept))
          << recompute.full << " full, " << recompute.selective << " selective";
    }
  }
}

TEST_P(EveryModel, ASplitBackwardPassGivesTheSameBits) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const Result at_once = RunOnce(Config(type), {1, 3}, layout());
    for (const LayerRecompute recompute : {LayerRecompute{}, LayerRecompute{.selective = 1, .full = 1}}) {
      const Options options = {.recompute = recompute, .split_backward = true};
      EXPECT_TRUE(SameBits(RunOnce(Config(type), {1, 3}, layout(), options), at_once));
    }
  }
}

TEST_P(GradientsOfEveryModel, AreTheSlopesOfTheLoss) {
  const ModelConfig config = Config(DataType::kFloat64);
  TestPipeline pipeline(config, kSeed, kWhole);
  const double loss_tokens = CountLossTokens(config, kSamples);
  pipeline.Run(kSamples, layout(), {}, loss_tokens);
  const Result result = pipeline.result();
  // What is learnt: with losses of routers.
  const auto learnt = [&] {
    const Result sum = pipeline.result();
    return sum.loss + sum.router_balance_loss + sum.router_z_loss;
  };
  const auto loss = [&] {
    const double before = learnt();
    pipeline.Run(kSamples, layout(), {}, loss_tokens);
    return learnt() - before;
  };
  constexpr double kStep = 1e-5;
  for (const NamedParameter& parameter : pipeline.stage(0).parameters()) {
    const at::Tensor element = parameter.value.flatten()[3];
    element.add_(kStep);
    const double above = loss();
    element.sub_(2 * kStep);
    const double below = loss();
    element.add_(kStep);
    const double slope = (above - below) / (2 * kStep);
    // A loss is the difference of sums over all runs before it.
    EXPECT_NEAR(result.gradients.at(parameter.name).flatten()[3].item<double>(), slope, 4e-8)
        << parameter.name;
  }
}

// Nothing is left of a micro-batch when its passes are over, and after BackwardInput nothing but the operands
// of the linear layers.
TEST_P(EveryModel, KeepsNothingButWhatIsPutAside) {
  const ModelConfig config = Config(DataType::kFloat32);
  auto stage = *MakeTransformerStage(config, {1, 2, false, false}, kSeed, at::kCPU);
  const MicroBatch shape = MakeMicroBatch(config, kSamples, layout());
  const TokenNeeds needs = TokenNeedsOf(config, {1, 2, false, false});
  const TokenBatch tokens =
      *MakeTokenBatch(shape, MakeTokens(kSamples, config.vocab), config, needs, at::kCPU);
  const at::Tensor input = at::ones(BoundaryShape(shape, config, 1));
  const at::Tensor gradient = at::ones(BoundaryShape(shape, config, 3));
  const auto bytes_of = [](const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); };
  int64_t full_bytes = 0;
  for (const LayerRecompute recompute :
       {LayerRecompute{.full = 2}, LayerRecompute{.selective = 2}, LayerRecompute{}}) {
    const int64_t before = TensorBytes(at::kCPU);
    auto forward = *stage->Forward(shape, tokens, input, recompute, 1, {});
    const int64_t stored = TensorBytes(at::kCPU) - before - bytes_of(forward.output);
    if (recompute.full > 0) full_bytes = stored;
    EXPECT_GE(stored, full_bytes) << "full recompute keeps the least";
    forward.output.reset();
    auto split = *stage->BackwardInput(std::move(forward), gradient, {});
    const int64_t aside = TensorBytes(at::kCPU) - before - bytes_of(split.input_gradient);
    EXPECT_GT(aside, full_bytes);
    split.input_gradient.reset();
    ASSERT_TRUE(stage->BackwardWeight(std::move(split.put_aside), {}).ok());
    stage->TakeRouterLosses();
    EXPECT_EQ(TensorBytes(at::kCPU), before);
  }
}

// Of a router that finds all experts as probable: the balance loss is least, 1 in each layer.
TEST(RouterLosses, OfABlindRouterAreKnown) {
  const ModelConfig config = SmallSharedExpertConfig(DataType::kFloat64);
  for (const Layout layout : {Layout::kPadded, Layout::kPacked, Layout::kConcatenated}) {
    TestPipeline pipeline(config, kSeed, kWhole);
    for (const NamedParameter& parameter : pipeline.stage(0).parameters()) {
      if (parameter.name.ends_with(".router.weight")) parameter.value.zero_();
    }
    pipeline.Run(kSamples, layout, {}, 1);
    const auto layers = static_cast<double>(config.layers);
    EXPECT_NEAR(pipeline.result().router_balance_loss, layers * config.router_balance_loss, 1e-12);
    const double score = std::log(static_cast<double>(config.experts));
    EXPECT_NEAR(pipeline.result().router_z_loss, layers * config.router_z_loss * score * score, 1e-12);
  }
}

TEST(RouterLosses, AreNoneOfAMicroBatchThatIsNotOfABatch) {
  const ModelConfig config = SmallSharedExpertConfig(DataType::kFloat32);
  MicroBatch shape = MakeMicroBatch(config, kSamples, Layout::kPacked);
  EXPECT_TRUE(MakeRoutedSamples(shape, config, at::kCPU, {}).has_value());
  shape.batch_tokens = 0;
  EXPECT_FALSE(MakeRoutedSamples(shape, config, at::kCPU, {}).has_value());
  shape.batch_tokens = 99;
  EXPECT_FALSE(MakeRoutedSamples(shape, SmallExpertsConfig(DataType::kFloat32), at::kCPU, {}).has_value());
}

TEST(RouterLosses, KnowTheSampleOfEachTokenAndPadding) {
  const ModelConfig config = SmallSharedExpertConfig(DataType::kFloat32);
  const MicroBatch shape = MakeMicroBatch(config, {{1, 1}, {0, 4}}, Layout::kPadded);
  const auto samples = MakeRoutedSamples(shape, config, at::kCPU, {});
  ASSERT_TRUE(samples.has_value());
  EXPECT_TRUE(samples->sample_of_token.equal(at::tensor({0, 0, 2, 2, 1, 1, 1, 1}, at::kLong)));
  EXPECT_TRUE(samples->tokens.equal(at::tensor({2, 4, 0}, at::kLong)));
  EXPECT_EQ(samples->batch_tokens, 6);
}

TEST(TransformerStage, ZeroGradientsStartsANewIteration) {
  const ModelConfig config = SmallT5Config(DataType::kFloat32);
  TestPipeline pipeline(config, kSeed, kWhole);
  pipeline.Run(kSamples, Layout::kPacked, {}, CountLossTokens(config, kSamples));
  const Result first = pipeline.result();
  pipeline.stage(0).ZeroGradients();
  pipeline.Run(kSamples, Layout::kPacked, {}, CountLossTokens(config, kSamples));
  Result second = pipeline.result();
  second.loss -= first.loss;
  EXPECT_TRUE(SameBits(second, first));
}

TEST(TransformerStage, GradientsOfBFloat16AreSummedInFloat32) {
  // bfloat16 alone would stop growing after 256 equal additions.
  constexpr int kTimes = 300;
  for (const Family family : {Family::kGpt, Family::kT5}) {
    const ModelConfig config = ConfigOf(family, DataType::kBFloat16);
    TestPipeline pipeline(config, kSeed, kWhole);
    for (int i = 0; i < kTimes; ++i) pipeline.Run({{2, 3}}, Layout::kPacked, {}, 3);
    TestPipeline once(config, kSeed, kWhole);
    once.Run({{2, 3}}, Layout::kPacked, {}, 3);
    Result many = pipeline.result();
    many.loss /= kTimes;
    for (auto& [name, gradient] : many.gradients) {
      EXPECT_EQ(gradient.scalar_type(), at::kFloat) << name;
      gradient.div_(kTimes);
    }
    EXPECT_LT(RelativeDifference(many, once.result()), 1e-5);
  }
}

TEST(TransformerStage, OfNothingButSamplesWithoutInputRuns) {
  const ModelConfig config = SmallT5Config(DataType::kFloat64);
  const std::vector<TestSample> samples = {{0, 3}, {0, 5}};
  for (const Layout layout : {Layout::kPadded, Layout::kPacked, Layout::kConcatenated}) {
    TestPipeline pipeline(config, kSeed, {1, 1, 1, 1});
    pipeline.Run(samples, layout, {}, 8);
    const Result result = pipeline.result();
    const Result plain = PlainModel(config, kSeed, samples, layout);
    EXPECT_NEAR(result.loss, plain.loss, 1e-12);
    for (const auto& [name, gradient] : result.gradients) {
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name;
    }
  }
}

TEST(TransformerStage, MarksTheCopiesOfSharedParameters) {
  const ModelConfig config = SmallT5Config(DataType::kFloat32);
  std::vector<std::string> first;
  std::vector<std::string> copies;
  for (int64_t layer = 0; layer < 4; ++layer) {
    const auto stage = *MakeTransformerStage(config, {layer, 1, layer == 0, layer == 3}, kSeed, at::kCPU);
    for (const NamedParameter& parameter : stage->parameters()) {
      if (parameter.shared) (parameter.copy ? copies : first).push_back(parameter.name);
    }
  }
  const std::vector<std::string> both = {"encoder.relative_bias.weight", "decoder.relative_bias.weight"};
  EXPECT_EQ(first, both);
  EXPECT_EQ(copies, both);
}

TEST(TransformerStage, RejectsAModelThatCannotBe) {
  ModelConfig config = SmallConfig(DataType::kFloat32);
  config.heads = 5;
  const auto heads = MakeTransformerStage(config, {0, 4, true, true}, kSeed, at::kCPU);
  EXPECT_EQ(heads.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(heads.status().message()), HasSubstr("model.heads: 5"));
  const auto range =
      MakeTransformerStage(SmallConfig(DataType::kFloat32), {3, 2, false, true}, kSeed, at::kCPU);
  EXPECT_THAT(std::string(range.status().message()), HasSubstr("layers 3 to 4, but the model has 4"));
  config = SmallT5Config(DataType::kFloat32);
  config.encoder_layers = 4;
  const auto decoder = MakeTransformerStage(config, {0, 4, true, true}, kSeed, at::kCPU);
  EXPECT_THAT(std::string(decoder.status().message()), HasSubstr("model.encoder_layers: 4 of 4"));
}

TEST(TransformerStage, RejectsASampleLongerThanItsPositions) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  auto stage = MakeTransformerStage(config, {0, 4, true, true}, kSeed, at::kCPU);
  const auto forward =
      (*stage)->Forward(MakeMicroBatch(config, {{20, 13}}, Layout::kPacked), {}, {}, {}, 1, {});
  EXPECT_EQ(forward.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(forward.status().message()),
              HasSubstr("length 33, but model.max_sequence_length is 32"));
}

TEST(TransformerStage, RejectsAMicroBatchWithoutItsTokens) {
  const ModelConfig config = SmallT5Config(DataType::kFloat32);
  auto stage = MakeTransformerStage(config, {2, 1, false, false}, kSeed, at::kCPU);
  const MicroBatch shape = MakeMicroBatch(config, {{2, 3}}, Layout::kPadded);
  const auto forward = (*stage)->Forward(shape, {}, at::zeros({1, 2, 24}), {}, 1, {});
  EXPECT_THAT(std::string(forward.status().message()), HasSubstr("tokens of the micro-batch are not loaded"));
}

// For a stage that embeds nothing and has no loss.
TokenBatch WithoutTokens(const ModelConfig& config, const MicroBatch& shape) {
  return *MakeTokenBatch(shape, {}, config, TokenNeeds(), at::kCPU);
}

TEST(TransformerStage, RejectsAnInputAndAGradientOfAWrongShape) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  auto stage = MakeTransformerStage(config, {1, 2, false, false}, kSeed, at::kCPU);
  const MicroBatch shape = MakeMicroBatch(config, {{2, 3}}, Layout::kPadded);
  const TokenBatch tokens = WithoutTokens(config, shape);
  const auto wrong = (*stage)->Forward(shape, tokens, at::zeros({1, 4, 24}), {}, 1, {});
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("expected shape [1, 5, 24], found [1, 4, 24]"));
  auto forward = (*stage)->Forward(shape, tokens, at::zeros({1, 5, 24}), {}, 1, {});
  const auto gradient = (*stage)->Backward(*forward, {}, {}, {});
  EXPECT_THAT(std::string(gradient.status().message()), HasSubstr("expected shape [1, 5, 24], found [none]"));
}

TEST(TransformerStage, RunsBackwardOnceOnly) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  auto stage = MakeTransformerStage(config, {1, 2, false, false}, kSeed, at::kCPU);
  const MicroBatch shape = MakeMicroBatch(config, {{2, 3}}, Layout::kPadded);
  auto forward =
      (*stage)->Forward(shape, WithoutTokens(config, shape), at::zeros({1, 5, 24}), {.full = 1}, 1, {});
  ASSERT_TRUE((*stage)->Backward(*forward, at::ones({1, 5, 24}), {}, {}).ok());
  const auto again = (*stage)->Backward(*forward, at::ones({1, 5, 24}), {}, {});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::worker
