// A model of Hugging Face's as a user trains it: imported, trained by `penstock up` from its parameters on,
// and exported. The first loss is the one that transformers computed (tests/unit/worker/hugging_face).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/dataset/indexed_dataset_writer.h"
#include "common/files/files.h"
#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kRunDeadline = absl::Seconds(120);
constexpr double kTolerance = 1e-5;

std::string GoldenFolder(const std::string& model) {
  return absl::StrCat(PENSTOCK_GOLDEN_FOLDER, "/", model);
}

class ModelsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    expected_ = nlohmann::json::parse(ReadFile(GoldenFolder(GetParam()) + "/expected.json").value_or(""),
                                      nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(expected_.is_object());
    ASSERT_NO_FATAL_FAILURE(WriteDataset());
  }

  void WriteDataset() const {
    auto writer = IndexedDatasetWriter::Create(Path("data"), {});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const auto& sample : expected_["samples"]) {
      const absl::Status added = (*writer)->Add(sample["input"].get<std::vector<int32_t>>(),
                                                sample["target"].get<std::vector<int32_t>>());
      ASSERT_TRUE(added.ok()) << added;
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  std::string Path(const std::string& name) const { return penstock_.folder().Path(name); }

  // What it prints.
  std::string Succeed(const std::vector<std::string>& arguments) {
    const Ended ended = penstock_.Run(arguments, kRunDeadline);
    EXPECT_EQ(ended.code, 0) << ended.errors;
    return ended.output;
  }

  // The summary of two iterations on all samples, in a pipeline.
  nlohmann::json Train(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = absl::StrSplit(
        "up --pp 2 --global-batch 5 --max-length 32 --iterations 2 --warmup 0 --lr 1e-3 "
        "--threads 1 --json",
        ' ');
    const bool some_experts = GetParam() == "qwen3_moe_some";
    for (const std::string& argument : {std::string("--dataset"), Path("data"), std::string("--profile"),
                                        penstock_.WriteProfile(some_experts)}) {
      arguments.push_back(argument);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(Succeed(arguments), nullptr, /*allow_exceptions=*/false);
  }

  Penstock penstock_;
  nlohmann::json expected_;
};

INSTANTIATE_TEST_SUITE_P(Families, ModelsTest,
                         testing::Values("gpt2", "granite", "llama", "llama_tied", "mistral", "mixtral",
                                         "olmoe", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
                                         "qwen3_moe_some", "smollm3"),
                         [](const auto& info) { return info.param; });

TEST_P(ModelsTest, IsImportedTrainedAndExported) {
  EXPECT_THAT(Succeed({"model", "import", GoldenFolder(GetParam()), Path("model")}), HasSubstr("imported "));
  const nlohmann::json summary =
      Train({"--init-from", Path("model"), "--checkpoint-every", "2", "--run-dir", Path("run")});
  ASSERT_TRUE(summary.is_object());
  EXPECT_NEAR(summary["first_loss"], expected_["loss"], kTolerance);
  EXPECT_LT(summary["last_loss"], summary["first_loss"]);

  EXPECT_THAT(Succeed({"model", "export", Path("run"), Path("hf")}), HasSubstr("of iteration 2"));
  // Training on samples of 32 tokens does not change how long a model's positions are.
  const auto config = [](const std::string& folder) {
    return ReadFile(folder + "/config.json").value_or("");
  };
  EXPECT_EQ(nlohmann::json::parse(config(Path("hf")), nullptr, /*allow_exceptions=*/false),
            nlohmann::json::parse(config(GoldenFolder(GetParam())), nullptr, /*allow_exceptions=*/false));
  EXPECT_THAT(Succeed({"model", "info", Path("run")}), HasSubstr("Penstock, iteration 2"));
  EXPECT_NE(ReadFile(Path("hf/model.safetensors")).value_or(""), "");
}

// What was trained is what the next run begins with: its first loss is below the one of the run before.
TEST_P(ModelsTest, GoesOnFromTheModelOfAnotherRun) {
  Succeed({"model", "import", GoldenFolder(GetParam()), Path("model")});
  const nlohmann::json first =
      Train({"--init-from", Path("model"), "--checkpoint-every", "2", "--run-dir", Path("run")});
  const nlohmann::json second = Train({"--init-from", Path("run"), "--run-dir", Path("second")});
  ASSERT_TRUE(first.is_object() && second.is_object());
  EXPECT_LT(second["first_loss"], first["last_loss"]);
}

// What `penstock generate` prints for a prompt, up to what transformers generated.
TEST_P(ModelsTest, IsEvaluatedAndGoesOnWithATextWithoutTraining) {
  Succeed({"model", "import", GoldenFolder(GetParam()), Path("model")});
  const std::string evaluated = Succeed({"evaluate", Path("model"), "--dataset", Path("data"), "--json"});
  const auto evaluation = nlohmann::json::parse(evaluated, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(evaluation.is_object()) << evaluated;
  EXPECT_EQ(evaluation["samples"], expected_["samples"].size());
  EXPECT_NEAR(evaluation["loss"], expected_["loss"], kTolerance);

  const std::string text =
      Succeed({"generate", Path("model"), "--no-stop", "--max-tokens", "8", "--tokens",
               absl::StrJoin(expected_["samples"].back()["input"].get<std::vector<int>>(), ",")});
  const std::string expected = absl::StrJoin(expected_["generated"].get<std::vector<int>>(), " ");
  EXPECT_EQ(text.substr(0, expected.size()), expected);
}

TEST_P(ModelsTest, IsTrainedAnewFromItsConfiguration) {
  const nlohmann::json summary =
      Train({"--model", GoldenFolder(GetParam()) + "/config.json", "--run-dir", Path("run")});
  ASSERT_TRUE(summary.is_object());
  // Of parameters that know nothing: the logarithm of the vocabulary.
  EXPECT_NEAR(summary["first_loss"], std::log(40), 0.2);
}

}  // namespace
}  // namespace penstock
