// docs/fine_tuning.md from its first step to its last: a model with a tokenizer and conversations go in, a
// model that answers, and its export, come out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr absl::Duration kRunDeadline = absl::Seconds(120);
// The tokens of the golden tokenizer, and some that it does not use, as real models have them.
constexpr const char* kVocab = "704";

std::string Tokenizer(const std::string& file) {
  return absl::StrCat(PENSTOCK_GOLDEN_TOKENIZERS, "/qwen2/", file);
}

// "3 and 4?", "The sum is 7."
std::string Chats(int first, int last) {
  std::string lines;
  for (int i = first; i < last; ++i) {
    const int left = i % 9, right = (i * 7) % 9;
    absl::StrAppend(&lines,
                    nlohmann::json{{"messages",
                                    {{{"role", "user"}, {"content", absl::StrCat(left, " and ", right, "?")}},
                                     {{"role", "assistant"},
                                      {"content", absl::StrCat("The sum is ", left + right, ".")}}}}}
                        .dump(),
                    "\n");
  }
  return lines;
}

class FineTuningTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return penstock_.folder().Path(name); }

  // What it prints.
  std::string Succeed(const std::string& command, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = absl::StrSplit(command, ' ');
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = penstock_.Run(arguments, kRunDeadline);
    EXPECT_EQ(ended.code, 0) << command << "\n" << ended.errors;
    return ended.output;
  }

  // In the place of a download: a model that knows nothing, in Hugging Face's format, and a tokenizer.
  void MakeModel() {
    const std::string text = penstock_.folder().Write("words.txt", "nothing that is about sums of numbers\n");
    Succeed("dataset import", {"--out", Path("words"), text});
    Succeed(
        "up --pp 1 --dp 1 --layers 2 --hidden 64 --heads 4 --ffn 256 --max-length 64 --global-batch 1 "
        "--iterations 1 --checkpoint-every 1 --vocab",
        {kVocab, "--dataset", Path("words"), "--profile", penstock_.WriteProfile(), "--run-dir",
         Path("scratch")});
    Succeed("model export", {Path("scratch"), Path("hf")});
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy(Tokenizer(file), Path("hf"));
  }

  void ImportChats(const std::string& name, const std::string& lines) {
    const std::string imported =
        Succeed("dataset import --threads 2 --tokenizer",
                {Path("model"), "--out", Path(name), penstock_.folder().Write(name + ".jsonl", lines)});
    EXPECT_THAT(imported, StartsWith("imported "));
  }

  Penstock penstock_;
};

TEST_F(FineTuningTest, ConversationsGoInAndAModelThatAnswersComesOut) {
  MakeModel();
  Succeed("model import", {Path("hf"), Path("model")});
  ImportChats("train", Chats(0, 81));
  ImportChats("validation", Chats(81, 100));

  const std::string trained = Succeed(
      "up --pp 2 --dp 1 --max-length 64 --global-batch 16 --iterations 200 --lr 3e-3 --warmup 5 "
      "--checkpoint-every 100 --threads 1",
      {"--init-from", Path("model"), "--dataset", Path("train"), "--validation", Path("validation"),
       "--profile", penstock_.WriteProfile(), "--run-dir", Path("run"), "--json"});
  const auto summary = nlohmann::json::parse(trained, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(summary.is_object()) << trained;
  EXPECT_LT(summary["best_validation_loss"], 0.5) << "of 6.5 at the beginning";

  const std::string answer =
      Succeed("generate", {Path("run/best"), "--chat", "3 and 4?", "--max-tokens", "30"});
  EXPECT_THAT(answer, HasSubstr("The sum is"));
  EXPECT_THAT(answer, Not(HasSubstr("<|im_end|>"))) << "the end of an answer is not a part of it";
  // The chat template written out by hand is the same prompt.
  EXPECT_EQ(
      Succeed("generate", {Path("run/best"), "<|im_start|>user\n3 and 4?<|im_end|>\n<|im_start|>assistant\n",
                           "--max-tokens", "30"}),
      answer);

  Succeed("model export", {Path("run/best"), Path("exported")});
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(ReadFile(Path("exported") + "/" + file).value_or(""), ReadFile(Tokenizer(file)).value())
        << file;
  // What was exported is what a newcomer downloads: it says the same.
  Succeed("model import", {Path("exported"), Path("again")});
  EXPECT_EQ(Succeed("generate", {Path("again"), "--chat", "3 and 4?", "--max-tokens", "30"}), answer);
}

// What is wrong is named, and nothing is written.
TEST_F(FineTuningTest, WhatCannotBecomeTokensIsRefused) {
  const std::string chat = penstock_.folder().Write("chat.jsonl", Chats(0, 1));
  const auto refusal = [&](const std::string& tokenizer, const std::string& lines) {
    const Ended ended =
        penstock_.Run({"dataset", "import", "--tokenizer", tokenizer, "--out", Path("refused"), lines});
    EXPECT_NE(ended.code, 0) << ended.output;
    EXPECT_FALSE(std::filesystem::exists(Path("refused.idx")));
    return ended.errors;
  };
  EXPECT_THAT(refusal(Path("nowhere"), chat), AllOf(HasSubstr("--tokenizer: "), HasSubstr(Path("nowhere"))));
  const std::string other =
      penstock_.folder().Write("other/tokenizer.json", R"({"model": {"type": "WordPiece"}})");
  EXPECT_THAT(refusal(other, chat), AllOf(HasSubstr(other), HasSubstr("WordPiece")));
  // A tokenizer that came without a chat template.
  const std::string plain = absl::StrCat(PENSTOCK_GOLDEN_TOKENIZERS, "/gpt2/tokenizer.json");
  EXPECT_THAT(refusal(plain, chat), AllOf(HasSubstr("chat.jsonl"), HasSubstr("template")));
  const std::string weighted = penstock_.folder().Write("weighted.jsonl", R"({"text": "a"})"
                                                                          "\n"
                                                                          R"({"text": "b", "weight": -2})"
                                                                          "\n");
  EXPECT_THAT(refusal(Tokenizer(""), weighted),
              AllOf(HasSubstr("weighted.jsonl"), HasSubstr("line 2"), HasSubstr("weight")));
}

}  // namespace
}  // namespace penstock
