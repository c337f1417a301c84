// penstock-tokenizer against Hugging Face's libraries and SentencePiece (make_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/tokenizer/tokenizer_process.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string Golden(const std::string& name) { return std::string(PENSTOCK_GOLDEN) + "/" + name; }

Json ReadJson(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return Json::parse(text.value_or("{}"));
}

std::unique_ptr<TokenizerProcess> Start(const std::string& path) {
  absl::StatusOr<std::unique_ptr<TokenizerProcess>> tokenizer =
      TokenizerProcess::Start(PENSTOCK_TOKENIZER, path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

class Tokenizer : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tokenizer_ = Start(Golden(GetParam()));
    ASSERT_NE(tokenizer_, nullptr);
  }

  const Json expected_ = ReadJson(Golden(GetParam()) + "/expected.json");
  std::unique_ptr<TokenizerProcess> tokenizer_;
};

TEST_P(Tokenizer, MakesTheTokensOfItsLibrary) {
  ASSERT_GT(expected_["texts"].size(), 20u);
  for (const Json& text : expected_["texts"]) {
    const auto tokens = tokenizer_->Encode(text["text"]);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, text["tokens"].get<std::vector<int32_t>>()) << text["text"];
  }
}

TEST_P(Tokenizer, MakesTheSameOfManyTextsTogether) {
  std::vector<std::string> texts;
  for (const Json& text : expected_["texts"]) texts.push_back(text["text"]);
  const auto tokens = tokenizer_->EncodeAll(texts);
  ASSERT_EQ(tokens.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_TRUE(tokens[i].ok()) << tokens[i].status();
    EXPECT_EQ(*tokens[i], expected_["texts"][i]["tokens"].get<std::vector<int32_t>>()) << texts[i];
  }
}

TEST_P(Tokenizer, MakesTheTextOfItsLibrary) {
  for (const Json& text : expected_["texts"]) {
    if (text["decoded"].is_null()) continue;
    const auto decoded = tokenizer_->Decode(text["tokens"]);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, text["decoded"].get<std::string>());
  }
}

TEST_P(Tokenizer, PutsTheSameAroundAText) {
  EXPECT_EQ(tokenizer_->info().prefix, expected_["ends"][0].get<std::vector<int32_t>>());
  EXPECT_EQ(tokenizer_->info().suffix, expected_["ends"][1].get<std::vector<int32_t>>());
  EXPECT_GE(tokenizer_->info().end, 0);
}

TEST_P(Tokenizer, WritesConversationsAsItsTemplateDoes) {
  EXPECT_EQ(tokenizer_->info().has_chat_template, !expected_["chats"].empty());
  for (const Json& chat : expected_["chats"]) {
    for (const char* form : {"text", "prompt"}) {
      const auto text = tokenizer_->Render(chat["messages"].dump(), std::string(form) == "prompt");
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, chat[form].get<std::string>());
    }
  }
  if (!expected_["chats"].empty()) return;
  EXPECT_EQ(tokenizer_->Render("[]", true).status().code(), absl::StatusCode::kFailedPrecondition);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Tokenizer,
                         testing::Values("gpt2", "qwen2", "llama3", "smollm", "llama2", "t5", "deepseek",
                                         "anthropic", "mistral", "gemma", "t5_json", "mt5"),
                         [](const auto& kind) { return kind.param; });

class TokenizerFile : public testing::Test {
 protected:
  // Of the small GPT-2's, changed.
  template <typename Change>
  std::string With(const Change& change) {
    Json tokenizer = ReadJson(Golden("gpt2/tokenizer.json"));
    change(tokenizer);
    return folder_.Write("tokenizer.json", tokenizer.dump());
  }
  static std::string Refusal(const std::string& path) {
    const auto tokenizer = TokenizerProcess::Start(PENSTOCK_TOKENIZER, path);
    return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
  }

  const TemporaryFolder folder_;
};

TEST_F(TokenizerFile, IsTakenAloneToo) {
  const auto tokenizer = Start(Golden("gpt2/tokenizer.json"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("")->size(), 0u);
}

TEST_F(TokenizerFile, IsRefusedByWhatIsNotKnownOfIt) {
  EXPECT_THAT(
      Refusal(With([](Json& json) {
        json["normalizer"] = {{"type", "Lowercase"}};
      })),
      AllOf(HasSubstr("tokenizer.json'"), HasSubstr("normalizer (Lowercase)"), HasSubstr("\"tokens\"")));
  EXPECT_THAT(Refusal(With([](Json& json) { json["model"]["type"] = "WordPiece"; })),
              HasSubstr("model.type is 'WordPiece'"));
  EXPECT_THAT(Refusal(With([](Json& json) { json["model"]["dropout"] = 0.1; })), HasSubstr("model.dropout"));
  EXPECT_THAT(Refusal(With([](Json& json) {
                json["post_processor"] = {{"type", "Other"}};
              })),
              HasSubstr("post_processor.type is 'Other'"));
  EXPECT_THAT(Refusal(folder_.Write("tokenizer.json", "[]")), HasSubstr("is no JSON object"));
  EXPECT_THAT(Refusal(folder_.Write("tokenizer.model", "nonsense")),
              HasSubstr("is no model of SentencePiece"));
  EXPECT_THAT(Refusal(folder_.Path("nowhere")), HasSubstr("there is no file or folder"));
}

// Parts of a tokenizer whose vocabulary is of pieces of text.
TEST_F(TokenizerFile, OfPiecesIsRefusedByWhatIsNotKnownOfIt) {
  const auto refusal = [&](const auto& change) {
    Json tokenizer = ReadJson(Golden("gemma/tokenizer.json"));
    change(tokenizer);
    return Refusal(folder_.Write("tokenizer.json", tokenizer.dump()));
  };
  EXPECT_EQ(refusal([](Json&) {}), "");
  EXPECT_THAT(refusal([](Json& json) {
                json["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("normalizer (Lowercase)"));
  EXPECT_THAT(refusal([](Json& json) {
                json["pre_tokenizer"] = {{"type", "Punctuation"}};
              }),
              HasSubstr("pre_tokenizer (Punctuation)"));
  EXPECT_THAT(refusal([](Json& json) {
                json["decoder"] = {{"type", "WordPiece"}};
              }),
              HasSubstr("decoder (WordPiece)"));
  EXPECT_THAT(refusal([](Json& json) { json["pre_tokenizer"]["invert"] = true; }),
              HasSubstr("invert is true"));
  EXPECT_THAT(refusal([](Json& json) {
                json["pre_tokenizer"]["pattern"] = {{"Regex", "[a-z]+"}};
              }),
              HasSubstr("the expression [a-z]+"));
  EXPECT_THAT(refusal([](Json& json) { json["added_tokens"][0]["single_word"] = true; }),
              HasSubstr("single_word"));
  EXPECT_THAT(refusal([](Json& json) { json["model"]["merges"].push_back("not there"); }),
              HasSubstr("model.merges: \"not there\" is not in the vocabulary"));
  EXPECT_THAT(refusal([](Json& json) {
                json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}};
              }),
              HasSubstr("precompiled_charsmap: is no table"));
  EXPECT_THAT(refusal([](Json& json) {
                json["model"] = {{"type", "Unigram"},
                                 {"vocab", Json::array({Json::array({"a", 0.0})})},
                                 {"unk_id", nullptr}};
              }),
              HasSubstr("model.unk_id: is missing"));
}

// Such as <think>, which models write. The library takes all added tokens for special ones.
TEST_F(TokenizerFile, AddedTokensThatAreNotSpecialAreText) {
  const auto tokenizer = Start(With([](Json& json) {
    for (const bool special : {false, true}) {
      json["added_tokens"].push_back({{"id", special ? 1001 : 1000},
                                      {"content", special ? "<end>" : "<think>"},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", special}});
    }
  }));
  ASSERT_NE(tokenizer, nullptr);
  const auto tokens = tokenizer->Encode("a<think>b<end>");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, testing::IsSupersetOf({1000, 1001}));
  EXPECT_EQ(*tokenizer->Decode(*tokens), "a<think>b");
}

// The library drops what a split leaves over; Hugging Face's keeps it.
TEST_F(TokenizerFile, KeepsTextThatASplitLeavesOver) {
  const auto tokenizer = Start(With([](Json& json) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", "\\s?\\p{L}+"}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, json["pre_tokenizer"]}}};
  }));
  ASSERT_NE(tokenizer, nullptr);
  const auto tokens = tokenizer->Encode("12 a, 3");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokenizer->Decode(*tokens), "12 a, 3");
}

TEST_F(TokenizerFile, IsRefusedWhereTextWouldBeLost) {
  const std::string path = With([](Json& json) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", "\\s?\\p{L}+"}}},
                        {"behavior", "Removed"},
                        {"invert", false}};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, json["pre_tokenizer"]}}};
  });
  EXPECT_THAT(Refusal(path), HasSubstr("pre_tokenizer (Sequence Split ByteLevel)"));
}

// ASCII to the library, all of Unicode to Hugging Face's.
TEST_F(TokenizerFile, IsRefusedWhereAnExpressionMeansSomethingElse) {
  EXPECT_THAT(Refusal(With([](Json& json) {
                json["pre_tokenizer"] = {{"type", "Split"},
                                         {"pattern", {{"Regex", "\\w+|[^\\w]+"}}},
                                         {"behavior", "Isolated"},
                                         {"invert", false}};
              })),
              HasSubstr("has \\w"));
}

class ChatTemplate : public testing::Test {
 protected:
  void SetTemplate(const std::string& text) {
    folder_.Write("tokenizer.json", *ReadFile(Golden("gpt2/tokenizer.json")));
    folder_.Write("chat_template.jinja", text);
    tokenizer_ = Start(folder_.path());
    ASSERT_NE(tokenizer_, nullptr);
  }
  // What a user's message becomes, or why not.
  std::string Rendered(const std::string& content) {
    const Json messages = {{{"role", "user"}, {"content", content}}};
    const auto text = tokenizer_->Render(messages.dump(), /*add_generation_prompt=*/true);
    return text.ok() ? *text : std::string(text.status().message());
  }

  const TemporaryFolder folder_;
  std::unique_ptr<TokenizerProcess> tokenizer_;
};

// As transformers reads templates: trim_blocks, lstrip_blocks.
TEST_F(ChatTemplate, LineEndsAndIndentsOfBlocksAreNoText) {
  SetTemplate(
      "{% for message in messages %}\n"
      "  {% if message['role'] == 'user' %}\n"
      "{{ '<|user|>\\n' + message['content'] }}\n"
      "\t{# a comment with %} in it #}\n"
      "  {% endif %}\n"
      "{% endfor %} {% if '%}' == '%}' %}x{% endif %}\n"
      "{%- if add_generation_prompt +%}\n<|assistant|>{% endif %}");
  EXPECT_EQ(Rendered("h"), "<|user|>\nh\n x\n<|assistant|>");
}

// The library trims ASCII's spaces, Python all of Unicode's.
TEST_F(ChatTemplate, TrimsWhatPythonTrims) {
  SetTemplate("{% for message in messages %}[{{ message['content'] | trim }}]{% endfor %}");
  EXPECT_EQ(Rendered("\u3000 \u00a0h\u2003 h\f\u0085"), "[h\u2003 h]");
  SetTemplate("{% for message in messages %}[{{ message['content'] }}]{% endfor %}");
  EXPECT_EQ(Rendered("\u3000h\f"), "[\u3000h\f]");
}

TEST_F(ChatTemplate, SaysWhatItWouldLoseOrGetWrong) {
  SetTemplate(
      "{% for message in messages %}{% if '</think>' in message['content'] %}thought{% else %}"
      "{{ message['content'] }}{% endif %}{% if message['role'] in ['user'] and 'x' not in ['y'] %}!{% endif "
      "%}"
      "{% endfor %}");
  EXPECT_EQ(Rendered("h"), "h!");
  EXPECT_THAT(Rendered("a</think>b"), HasSubstr("asks whether '</think>' is in a text"));
  EXPECT_THAT(Rendered(std::string("a\0b", 3)), HasSubstr("U+0000"));
}

TEST_F(ChatTemplate, NeedsATokenizerThatKnowsItsSpecialTokens) {
  const TemporaryFolder folder;
  folder.Write("spiece.model", *ReadFile(Golden("t5/spiece.model")));
  folder.Write("chat_template.jinja", "{{ messages[0]['content'] }}");
  const auto tokenizer = Start(folder.path());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(
      std::string(tokenizer->Render(R"([{"role": "user", "content": "Hi"}])", true).status().message()),
      HasSubstr("SentencePiece alone does not know the special tokens"));
  EXPECT_THAT(std::string(tokenizer->Encode(std::string("a\0b", 3)).status().message()), HasSubstr("U+0000"));
}

TEST(TokenizerProcess, SaysWhatTheTemplateRefuses) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", *ReadFile(Golden("gpt2/tokenizer.json")));
  folder.Write("chat_template.jinja", "{{ raise_exception('only users speak here') }}");
  const auto tokenizer = Start(folder.path());
  ASSERT_NE(tokenizer, nullptr);
  const auto text = tokenizer->Render(R"([{"role": "user", "content": "Hi"}])", true);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("only users speak here"));
  // It goes on.
  EXPECT_TRUE(tokenizer->Encode("Hi").ok());
}

// More than go into one message, one of them refused.
TEST(TokenizerProcess, AnswersEachOfManyTexts) {
  const auto tokenizer = Start(Golden("t5/spiece.model"));
  ASSERT_NE(tokenizer, nullptr);
  std::string longer;
  while (longer.size() < 50'000) longer += "To be, or not to be. ";
  std::vector<std::string> texts(12, longer);
  texts[7] = std::string("a\0b", 3);
  texts[9] = "";
  const auto tokens = tokenizer->EncodeAll(texts);
  ASSERT_EQ(tokens.size(), texts.size());
  EXPECT_THAT(std::string(tokens[7].status().message()), HasSubstr("U+0000"));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == 7) continue;
    EXPECT_EQ(*tokens[i], *tokenizer->Encode(texts[i])) << i;
  }
  EXPECT_TRUE(tokenizer->EncodeAll({}).empty());
}

TEST(TokenizerProcess, NamesAProgramThatCannotBeStarted) {
  EXPECT_EQ(TokenizerProcess::Start("/nowhere/penstock-tokenizer", Golden("gpt2")).status().code(),
            absl::StatusCode::kNotFound);
  const auto ended = TokenizerProcess::Start("/bin/true", Golden("gpt2"));
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace penstock
