#include "planner/cli/inference/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PromptTest : public ::testing::Test {
 protected:
  PromptTest() { model_.set_vocab(256); }

  absl::StatusOr<Prompt> Of(const std::string& text, const std::vector<int32_t>& tokens = {}) const {
    return PromptOf(model_, {.text = text, .tokens = tokens}, nullptr);
  }
  std::string Refusal(const std::string& text, const std::vector<int32_t>& tokens = {}) const {
    const absl::StatusOr<Prompt> prompt = Of(text, tokens);
    return prompt.ok() ? "" : std::string(prompt.status().message());
  }

  const TemporaryFolder folder_;
  v1::ModelSpec model_;
};

TEST_F(PromptTest, OfAModelOfBytesIsTheTextItself) {
  const absl::StatusOr<Prompt> prompt = Of("\xc3\xa4.");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->tokens, ElementsAre(0xc3, 0xa4, '.'));
  EXPECT_TRUE(prompt->as_bytes);
}

TEST_F(PromptTest, TokensAreTakenAsTheyAre) {
  model_.set_vocab(32000);
  const absl::StatusOr<Prompt> prompt = Of("", {1, 29892});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->tokens, ElementsAre(1, 29892));
  EXPECT_FALSE(prompt->as_bytes);
}

TEST_F(PromptTest, TextIsRefusedWhereTokensAreNoBytes) {
  EXPECT_THAT(Refusal(""), HasSubstr("give either PROMPT or --tokens"));
  EXPECT_THAT(Refusal("a", {1}), HasSubstr("give either PROMPT or --tokens"));
  model_.set_vocab(100);
  EXPECT_THAT(Refusal("z"), HasSubstr("byte 122 was in no sample"));
  model_.set_vocab(257);
  EXPECT_THAT(Refusal("a"), HasSubstr("257 tokens, which are not bytes: give --tokens"));
}

TEST_F(PromptTest, TextIsThatOfTheTokenizerWithWhatItPutsAround) {
  model_.set_vocab(32000);
  FakeTokenizer tokenizer;
  const absl::StatusOr<Prompt> prompt = PromptOf(model_, {.text = "ab"}, &tokenizer);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->tokens, ElementsAre(1, 'a', 'b'));
  EXPECT_FALSE(prompt->as_bytes);
  // Of a T5.
  tokenizer.mutable_info() = {.prefix = {}, .suffix = {2}};
  EXPECT_THAT(PromptOf(model_, {.text = "ab"}, &tokenizer)->tokens, ElementsAre('a', 'b', 2));
  EXPECT_THAT(std::string(PromptOf(model_, {.text = "a!"}, &tokenizer).status().message()),
              HasSubstr("no '!' here"));
}

TEST_F(PromptTest, AMessageIsWrittenAsTheTemplateHasItAndNothingIsPutAround) {
  FakeTokenizer tokenizer;
  const absl::StatusOr<Prompt> prompt = PromptOf(model_, {.text = "Hi", .chat = true}, &tokenizer);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(std::string(prompt->tokens.begin(), prompt->tokens.end()), "<user>Hi</><assistant>");
  EXPECT_THAT(std::string(PromptOf(model_, {.text = "Hi", .chat = true}, nullptr).status().message()),
              HasSubstr("--chat: this model came without a tokenizer"));
}

TEST_F(PromptTest, TextsEndWhereTheModelSaysSo) {
  EXPECT_THAT(*EndTokens(folder_.path()), IsEmpty());
  folder_.Write("hugging_face/config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(*EndTokens(folder_.path()), ElementsAre(2));
  folder_.Write("hugging_face/generation_config.json", R"({"eos_token_id": [501, 502]})");
  EXPECT_THAT(*EndTokens(folder_.path()), ElementsAre(501, 502));
  folder_.Write("hugging_face/generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_THAT(std::string(EndTokens(folder_.path()).status().message()),
              HasSubstr("generation_config.json': eos_token_id: \"x\""));
}

}  // namespace
}  // namespace penstock::cli
