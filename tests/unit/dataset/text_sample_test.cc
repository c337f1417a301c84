#include "common/dataset/text_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_tokenizer.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Letters as they are, 1 as ^ and 2 as $: "^ask|answer$".
std::string Show(const TokenSample& sample) {
  std::string text;
  for (const auto* tokens : {&sample.input, &sample.target}) {
    for (const int32_t token : *tokens)
      text += token == 1 ? '^' : token == 2 ? '$' : static_cast<char>(token);
    if (tokens == &sample.input) text += '|';
  }
  return text;
}

class TextSampleTest : public testing::Test {
 protected:
  std::vector<std::string> Read(const std::string& line) {
    const auto samples = TokenizeJsonSample(line, tokenizer_);
    EXPECT_TRUE(samples.ok()) << samples.status();
    std::vector<std::string> shown;
    for (const TokenSample& sample : samples.value_or(std::vector<TokenSample>()))
      shown.push_back(Show(sample));
    return shown;
  }
  std::string Refusal(const std::string& line) {
    const auto samples = TokenizeJsonSample(line, tokenizer_);
    EXPECT_EQ(samples.status().code(), absl::StatusCode::kInvalidArgument) << line;
    return std::string(samples.status().message());
  }

  FakeTokenizer tokenizer_;
};

constexpr char kTwoAnswers[] =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "A"},
                     {"role": "assistant", "content": "B"}, {"role": "user", "content": "C"},
                     {"role": "assistant", "content": "D"}]})";

TEST_F(TextSampleTest, ATextIsLearntWholeAndEnds) {
  EXPECT_THAT(Read(R"({"text": "To be", "id": 7})"), ElementsAre("|^To be$"));
  EXPECT_EQ(Show(TokenizeAll({WholeText("be")}, tokenizer_).front()->front()), "|^be$");
}

TEST_F(TextSampleTest, LinesThatBecomeTokensTogetherKeepTheirPlacesAndTheirErrors) {
  std::vector<absl::StatusOr<SampleLine>> lines;
  for (const char* line : {R"({"prompt": "a", "completion": "b"})", R"({"tokens": [5, 6]})", "no line",
                           R"({"prompt": "c!", "completion": "d"})", kTwoAnswers, R"({"text": "e"})"})
    lines.push_back(ReadJsonSample(line, tokenizer_, Conversations::kEachAnswer));
  const auto samples = TokenizeAll(lines, tokenizer_);
  ASSERT_EQ(samples.size(), 6);
  EXPECT_EQ(Show(samples[0]->front()), "^a|b$");
  EXPECT_THAT(samples[1]->front().target, ElementsAre(5, 6));
  EXPECT_EQ(samples[2].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(samples[3].status().message()), HasSubstr("no '!' here"));
  ASSERT_EQ(samples[4]->size(), 2);
  EXPECT_EQ(Show(samples[4]->back()), "<system>S</><user>A</><assistant>B</><user>C</><assistant>|D</>");
  EXPECT_EQ(Show(samples[5]->front()), "|^e$") << "behind texts that are refused";
}

TEST_F(TextSampleTest, ACompletionIsLearntBehindItsPrompt) {
  EXPECT_THAT(Read(R"({"prompt": "To be", "completion": " or"})"), ElementsAre("^To be| or$"));
}

// As a T5's tokenizer ends its input.
TEST_F(TextSampleTest, InputAndTargetEndAsTheTokenizerEndsThem) {
  tokenizer_.mutable_info() = {.suffix = {2}, .end = 2};
  EXPECT_THAT(Read(R"({"input": "to be", "target": "sein"})"), ElementsAre("to be$|sein$"));
}

TEST_F(TextSampleTest, AConversationIsOneSampleOfWhichTheAnswersAreLearnt) {
  EXPECT_THAT(Read(kTwoAnswers),
              ElementsAre("<system>S</><user>A</><assistant>|B</><user>C</><assistant>D</>"));
  const auto samples = TokenizeJsonSample(kTwoAnswers, tokenizer_);
  // "B</>" and "D</>", and between them "<user>C</><assistant>".
  std::vector<float> expected(4, 1);
  expected.insert(expected.end(), 21, 0);
  expected.insert(expected.end(), 4, 1);
  EXPECT_EQ(samples->front().weights, expected);
}

TEST_F(TextSampleTest, EachAnswerIsASampleWhereThatIsAskedForOrTheTemplateForgets) {
  const auto answers = ElementsAre("<system>S</><user>A</><assistant>|B</>",
                                   "<system>S</><user>A</><assistant>B</><user>C</><assistant>|D</>");
  std::vector<std::string> shown;
  const auto samples = *TokenizeJsonSample(kTwoAnswers, tokenizer_, Conversations::kEachAnswer);
  for (const TokenSample& sample : samples) {
    shown.push_back(Show(sample));
    EXPECT_TRUE(sample.weights.empty());
  }
  EXPECT_THAT(shown, answers);
  tokenizer_.ForgetEarlierAnswers();
  EXPECT_THAT(Read(kTwoAnswers),
              ElementsAre("<system>S</><user>A</><assistant>|B</>",
                          "<system>S</><user>A</><assistant></><user>C</><assistant>|D</>"));
}

TEST_F(TextSampleTest, WeightsOfLinesAndOfAnswersMultiply) {
  const auto samples = TokenizeJsonSample(
      R"({"weight": 2, "messages": [{"role": "user", "content": "A"},
                                    {"role": "assistant", "content": "B", "weight": 0.25},
                                    {"role": "assistant", "content": "C"}]})",
      tokenizer_);
  ASSERT_TRUE(samples.ok()) << samples.status();
  // "B</>", "<assistant>", "C</>".
  std::vector<float> expected(4, 0.5F);
  expected.insert(expected.end(), 11, 0);
  expected.insert(expected.end(), 4, 2);
  EXPECT_EQ(samples->front().weights, expected);
  EXPECT_THAT(TokenizeJsonSample(R"({"text": "AB", "weight": 3})", tokenizer_)->front().weights,
              ElementsAre(3, 3, 3, 3));
}

TEST_F(TextSampleTest, AnAnswerOfNoWeightIsNotLearnt) {
  EXPECT_THAT(Read(R"({"messages": [{"role": "user", "content": "A"},
                                    {"role": "assistant", "content": "B", "weight": 0},
                                    {"role": "assistant", "content": "C", "weight": 1}]})"),
              ElementsAre("<user>A</><assistant>B</><assistant>|C</>"));
}

TEST_F(TextSampleTest, OtherFormsOfConversationsMeanTheSame) {
  const std::string expected = "<user>A</><assistant>|B</>";
  EXPECT_THAT(Read(R"({"conversations": [{"from": "human", "value": "A"}, {"from": "gpt", "value": "B"}]})"),
              ElementsAre(expected));
  EXPECT_THAT(Read(R"({"instruction": "A", "output": "B", "input": ""})"), ElementsAre(expected));
  EXPECT_THAT(Read(R"({"instruction": "A", "input": "1 2", "output": "B"})"),
              ElementsAre("<user>A\n\n1 2</><assistant>|B</>"));
  // Answers of the prompt are not learnt.
  EXPECT_THAT(Read(R"({"prompt": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "x"}],
                       "completion": [{"role": "assistant", "content": "B"}]})"),
              ElementsAre("<user>A</><assistant>x</><assistant>|B</>"));
}

TEST_F(TextSampleTest, TokensStayTokens) {
  EXPECT_THAT(Read(R"({"tokens": [65, 66]})"), ElementsAre("|AB"));
  EXPECT_THAT(Read(R"({"input": [65], "target": [66]})"), ElementsAre("A|B"));
}

TEST_F(TextSampleTest, WhatIsNoSampleIsRefusedByName) {
  EXPECT_THAT(Refusal("{\"text\": "), HasSubstr("this is not JSON"));
  EXPECT_THAT(Refusal(R"({"story": "A"})"), HasSubstr("expected \"text\", \"messages\""));
  EXPECT_THAT(Refusal(R"({"text": 5})"), HasSubstr("field \"text\" is no string"));
  EXPECT_THAT(Refusal(R"({"prompt": "A"})"), HasSubstr("field \"completion\" is missing"));
  EXPECT_THAT(Refusal(R"({"instruction": "A"})"), HasSubstr("field \"output\" is missing"));
  EXPECT_THAT(Refusal(R"({"text": "A", "weight": -0.5})"), HasSubstr("field \"weight\": weight -0.5"));
  EXPECT_THAT(Refusal(R"({"text": "A", "weight": "1"})"), HasSubstr("weight is \"1\", expected a number"));
  EXPECT_THAT(Refusal(R"({"text": "A", "weight": 0})"), HasSubstr("nothing is learnt"));
  EXPECT_THAT(Refusal(R"({"text": "A", "weights": [1]})"), HasSubstr("field \"weights\" is of tokens"));
  EXPECT_THAT(Refusal(R"({"text": "A!"})"), HasSubstr("no '!' here"));
  EXPECT_THAT(Refusal(R"({"messages": "A"})"), HasSubstr("\"messages\" is no list"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user", "content": "A"}]})"),
              HasSubstr("no message with \"role\": \"assistant\""));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant"}]})"),
              HasSubstr("messages[1]: expected \"role\" and \"content\""));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "assistant", "content": "A", "weight": -0.5}]})"),
              HasSubstr("field \"messages[0].weight\": weight -0.5"));
  EXPECT_THAT(Refusal(R"({"conversations": [{"from": "tool", "value": "A"}]})"),
              HasSubstr("conversations[0]: expected \"from\""));
}

TEST_F(TextSampleTest, AConversationNeedsATemplateThatKeepsWhatCameBefore) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]})";
  tokenizer_.Forget();
  EXPECT_THAT(Refusal(line), HasSubstr("messages[1]: the chat template writes what comes before the answer"));
  tokenizer_.mutable_info().has_chat_template = false;
  EXPECT_THAT(Refusal(line), HasSubstr("has no chat template"));
  EXPECT_THAT(Refusal(R"({"instruction": "A", "output": "B"})"),
              HasSubstr("needs a tokenizer with a chat template"));
}

}  // namespace
}  // namespace penstock
