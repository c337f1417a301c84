// Models of Hugging Face's families compute what transformers computes: losses and gradients of tiny random
// checkpoints, within float32, whatever the stages, layouts and passes. golden/ is made by ./make_golden.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/hugging_face/golden_model.h"
#include "tests/unit/worker/model_testing.h"
#include "worker/checkpoint/initial_values.h"

namespace penstock::worker {
namespace {

constexpr double kTolerance = 1e-5;

class HuggingFaceTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Of all parameters, from the gradients that transformers had.
  Result Expected() const {
    Result result{golden_.loss, {}};
    std::vector<TensorPiece> pieces;
    for (const ParameterSpec& spec :
         StageParameterSpecs(golden_.config, {0, golden_.config.layers, true, true})) {
      result.gradients[spec.name] = at::full(spec.shape, NAN, at::kFloat);
      pieces.push_back({WholeSlice(spec.name, spec.shape), 0, result.gradients[spec.name]});
    }
    const absl::Status read = ReadInitialValues(golden_.gradients, pieces);
    EXPECT_TRUE(read.ok()) << read;
    return result;
  }

  // A pipeline with the parameters that transformers wrote.
  TestPipeline Load(const std::vector<uint32_t>& stages) const {
    TestPipeline pipeline(golden_.config, /*seed=*/1, stages);
    for (size_t i = 0; i < stages.size(); ++i) {
      std::vector<TensorPiece> pieces;
      for (const NamedParameter& parameter : pipeline.stage(i).parameters()) {
        pieces.push_back({WholeSlice(parameter.name, parameter.value.sizes().vec()), 0, parameter.value});
      }
      const absl::Status read = ReadInitialValues(golden_.parameters, pieces);
      EXPECT_TRUE(read.ok()) << read;
    }
    return pipeline;
  }

  // All samples, some in each micro-batch.
  void Train(TestPipeline& pipeline, Layout layout, const TestPipeline::Options& options) const {
    constexpr size_t kTogether = 2;
    std::vector<TestSample> shapes;
    Tokens tokens;
    for (const GoldenSample& sample : golden_.samples) {
      shapes.push_back(
          {static_cast<uint32_t>(sample.input.size()), static_cast<uint32_t>(sample.target.size())});
      tokens.push_back(sample.input);
      tokens.back().insert(tokens.back().end(), sample.target.begin(), sample.target.end());
    }
    const double loss_tokens = CountLossTokens(golden_.config, shapes);
    for (size_t i = 0; i < shapes.size(); i += kTogether) {
      const auto part = [&](const auto& all) {
        const auto end = static_cast<ptrdiff_t>(std::min(i + kTogether, all.size()));
        return std::decay_t<decltype(all)>(all.begin() + static_cast<ptrdiff_t>(i), all.begin() + end);
      };
      pipeline.Run(part(shapes), part(tokens), layout, options, loss_tokens);
    }
  }

  const TemporaryFolder folder_;
  const GoldenModel golden_ = ImportGolden(GetParam(), folder_.path());
};

INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceTest,
                         ::testing::Values("gemma2", "gemma3", "gpt2", "granite", "llama", "llama_tied",
                                           "mistral", "mistral_window", "mixtral", "olmo2", "olmoe", "phi3",
                                           "phi3_long", "qwen2", "qwen2_moe", "qwen2_moe_some", "qwen2_yarn",
                                           "qwen3", "qwen3_moe", "qwen3_moe_some", "smollm3", "t5", "t5_1_1",
                                           "t5_unscaled"),
                         [](const auto& info) { return info.param; });

TEST_P(HuggingFaceTest, LossAndGradientsAreThoseOfTransformers) {
  const Result expected = Expected();
  const auto layers = static_cast<uint32_t>(golden_.config.layers);
  const std::vector<std::vector<uint32_t>> splits = {
      {layers}, std::vector<uint32_t>(layers, 1), {layers - 1, 0, 1}};
  for (const std::vector<uint32_t>& split : splits) {
    for (const Layout layout : {Layout::kPadded, Layout::kPacked}) {
      for (const bool split_backward : {false, true}) {
        TestPipeline pipeline = Load(split);
        Train(pipeline, layout, {.recompute = {.selective = 1, .full = 1}, .split_backward = split_backward});
        EXPECT_LT(RelativeDifference(pipeline.result(), expected), kTolerance)
            << split.size() << " stages, layout " << static_cast<int>(layout);
      }
    }
  }
}

TEST_P(HuggingFaceTest, GradientsAreNotThoseOfOtherParameters) {
  TestPipeline pipeline = Load({static_cast<uint32_t>(golden_.config.layers)});
  for (const NamedParameter& parameter : pipeline.stage(0).parameters()) parameter.value.mul_(1.001);
  Train(pipeline, Layout::kPacked, {});
  EXPECT_GT(RelativeDifference(pipeline.result(), Expected()), 10 * kTolerance);
}

TEST_P(HuggingFaceTest, AnExportedModelHasEveryBitOfTheImportedOne) {
  const std::vector<std::string> before = TensorsOf(GoldenFolder(GetParam()));
  EXPECT_FALSE(before.empty());
  for (const uint64_t most_file_bytes : {uint64_t{5'000'000'000}, uint64_t{6000}}) {
    const std::string to = folder_.Path(std::to_string(most_file_bytes));
    ASSERT_NO_FATAL_FAILURE(ExportGolden(folder_.path(), to, most_file_bytes));
    EXPECT_EQ(TensorsOf(to), before);
    EXPECT_EQ(std::filesystem::exists(to + "/model.safetensors"), most_file_bytes > 6000);
  }
}

}  // namespace
}  // namespace penstock::worker
