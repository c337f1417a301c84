// A tokenizer of letters, for tests of what is made with one: 'a' is token 'a'. Texts begin with 1 and end
// with 2; a conversation is "<user>Hi</>" for each message, and "<assistant>" where an answer is asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

class FakeTokenizer : public TextTokenizer {
 public:
  const TokenizerInfo& info() const override { return info_; }
  TokenizerInfo& mutable_info() { return info_; }

  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) override {
    if (text.find('!') != std::string::npos) return absl::InvalidArgumentError("no '!' here");
    std::vector<int32_t> tokens;
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) override {
    return std::string(tokens.begin(), tokens.end());
  }
  absl::StatusOr<std::string> Render(const std::string& messages, bool add_generation_prompt) override {
    std::string text = start_;
    const auto parsed = nlohmann::json::parse(messages);
    for (const auto& message : parsed) {
      const bool forgotten =
          forgets_answers_ && message.value("role", "") == "assistant" && &message != &parsed.back();
      absl::StrAppend(&text, "<", message.value("role", ""), ">",
                      forgotten ? "" : message.value("content", ""), "</>");
    }
    // As templates do that leave out what was thought before the last answer.
    if (forgets_) start_ += "~";
    return add_generation_prompt ? absl::StrCat(text, "<assistant>") : text;
  }
  void Forget() { forgets_ = true; }
  // The content of answers that are not the last message.
  void ForgetEarlierAnswers() { forgets_answers_ = true; }

 private:
  TokenizerInfo info_ = {.prefix = {1}, .end = 2, .vocab = 128, .has_chat_template = true};
  bool forgets_ = false;
  bool forgets_answers_ = false;
  std::string start_;
};

}  // namespace penstock
