// Models run forward alone: the losses and texts that transformers finds, a token at a time or all at once.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/hugging_face/golden_model.h"
#include "worker/inference/evaluation.h"
#include "worker/inference/language_model.h"
#include "worker/inference/sampling.h"
#include "worker/inference/text_decoder.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-5;

class InferenceTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<LanguageModel> Load(DataType type) const {
    ModelConfig config = golden_.config;
    config.dtype = type;
    auto model = LanguageModel::Load(config, {golden_.parameters}, at::kCPU);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  std::vector<SampleTokensOf> Samples() const {
    std::vector<SampleTokensOf> samples;
    for (const GoldenSample& sample : golden_.samples) samples.push_back({sample.input, sample.target});
    return samples;
  }

  const TemporaryFolder folder_;
  const GoldenModel golden_ = ImportGolden(GetParam(), folder_.path());
  const std::vector<int32_t> prompt_ = golden_.samples.back().input;
};

INSTANTIATE_TEST_SUITE_P(Models, InferenceTest,
                         ::testing::Values("gemma2", "gemma3", "gpt2", "granite", "llama", "llama_tied",
                                           "mistral", "mistral_window", "mixtral", "olmo2", "olmoe", "phi3",
                                           "phi3_long", "qwen2", "qwen2_yarn", "qwen3", "qwen3_moe",
                                           "qwen2_moe", "qwen3_moe_some", "smollm3", "t5", "t5_1_1",
                                           "t5_unscaled"),
                         [](const auto& info) { return info.param; });

TEST_P(InferenceTest, TheLossIsThatOfTransformersWhateverIsComputedTogether) {
  const auto model = Load(DataType::kFloat32);
  const auto together = Evaluate(*model, Samples());
  ASSERT_TRUE(together.ok()) << together.status();
  EXPECT_NEAR(together->mean(), golden_.loss, kTolerance);
  EvaluatedLoss apart;
  for (const SampleTokensOf& sample : Samples()) {
    const auto loss = Evaluate(*model, {sample});
    ASSERT_TRUE(loss.ok()) << loss.status();
    apart.sum += loss->sum;
    apart.weight += loss->weight;
    apart.positions += loss->positions;
  }
  EXPECT_EQ(apart.positions, together->positions);
  EXPECT_NEAR(apart.mean(), golden_.loss, kTolerance);
}

// What is masked is as if it were not asked for, whatever lies beside it.
TEST_P(InferenceTest, TokensOfNoWeightAreNoPartOfTheLoss) {
  const auto model = Load(DataType::kFloat32);
  SampleTokensOf masked = Samples().front();
  masked.weights.assign(masked.target.size(), 0);
  masked.weights.back() = 2;
  SampleTokensOf last = masked;
  last.weights.back() = 1;
  const auto alone = Evaluate(*model, {last});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->positions, 1u);
  const auto other = Evaluate(*model, {Samples().back()});
  const auto both = Evaluate(*model, {masked, Samples().back()});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->positions, other->positions + 1);
  EXPECT_NEAR(both->sum, 2 * alone->sum + other->sum, kTolerance * both->sum);
  EXPECT_EQ(both->weight, other->weight + 2);
}

TEST_P(InferenceTest, TheMostProbableTokensAreThoseOfTransformers) {
  const auto model = Load(DataType::kFloat32);
  const auto decoder = StartDecoder(*model, prompt_, 8);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  Sampler greedy({});
  std::vector<int32_t> tokens;
  while (tokens.size() < golden_.generated.size()) {
    tokens.push_back(greedy.Choose((*decoder)->logits()));
    ASSERT_TRUE((*decoder)->Append(tokens.back()).ok());
  }
  EXPECT_EQ(tokens, golden_.generated);
}

// Token by token, a cache gives what one pass over all tokens gives: of a model that turns long texts by
// other angles (RotaryRow), from where the text is one.
TEST_P(InferenceTest, LogitsAreThoseOfTheWholeText) {
  const auto model = Load(DataType::kFloat64);
  const SampleTokensOf text = Samples().back();
  const bool sides = golden_.config.architecture == Architecture::kT5;
  const auto tokens = PackSamples(*model, {text});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const at::Tensor whole = model->Logits(model->Decode(*tokens, model->Encode(*tokens)));
  const auto most = static_cast<int64_t>(text.target.size());
  const auto decoder = StartDecoder(*model, text.input, most);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const int64_t first = sides ? 0 : static_cast<int64_t>(text.input.size()) - 1;
  const auto row = [&](int64_t length) { return RotaryRow(golden_.config.rotary, length, length, 0); };
  const bool is_long = row(first + 1 + most) != 0;
  for (int64_t i = 0; i < most; ++i) {
    const double difference = ((*decoder)->logits() - whole[first + i]).abs().max().item<double>();
    if (sides || is_long == (row(first + 1 + i) != 0)) {
      EXPECT_LT(difference, 1e-11) << i;
    } else {
      EXPECT_GT(difference, 1e-3) << i;
    }
    ASSERT_TRUE((*decoder)->Append(text.target[static_cast<size_t>(i)]).ok());
  }
  if (!sides) {
    EXPECT_EQ((*decoder)->Append(1).code(), absl::StatusCode::kOutOfRange);
  }
}

TEST_P(InferenceTest, NamesAPromptThatTheModelCannotRead) {
  const auto model = Load(DataType::kFloat32);
  const auto refusal = [&](const std::vector<int32_t>& prompt, int64_t most) {
    const auto decoder = StartDecoder(*model, prompt, most);
    return decoder.ok() ? "" : std::string(decoder.status().message());
  };
  EXPECT_THAT(refusal({}, 1), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal({1, 40}, 1), HasSubstr("token 40: the vocabulary has 40 tokens"));
  if (golden_.config.architecture == Architecture::kGpt) {
    EXPECT_THAT(refusal({1}, 1000), HasSubstr("positions: ask for fewer"));
  }
}

TEST(SamplerTest, TemperatureAndShareDecideWhatIsDrawn) {
  const at::Tensor logits = at::tensor({0.6, 0.3, 0.1}, at::kDouble).log();
  EXPECT_EQ(Sampler({}).Choose(logits), 0);
  const auto counts = [&](const SamplingOptions& options) {
    Sampler sampler(options);
    std::vector<double> shares(3);
    for (int i = 0; i < 10000; ++i) shares[static_cast<size_t>(sampler.Choose(logits))] += 1e-4;
    return shares;
  };
  EXPECT_THAT(counts({.temperature = 1}), ::testing::Pointwise(::testing::DoubleNear(0.02), {0.6, 0.3, 0.1}));
  EXPECT_THAT(counts({.temperature = 1, .top_p = 0.7}),
              ::testing::Pointwise(::testing::DoubleNear(0.02), {2.0 / 3, 1.0 / 3, 0.0}));
  EXPECT_THAT(counts({.temperature = 0.5}),
              ::testing::Pointwise(::testing::DoubleNear(0.02), {0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46}));
  EXPECT_EQ(counts({.temperature = 1, .seed = 7}), counts({.temperature = 1, .seed = 7}));
}

}  // namespace
}  // namespace penstock::worker
