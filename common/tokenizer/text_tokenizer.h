// Text to tokens and back, and a conversation to text, as a model's tokenizer and chat template do it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct TokenizerInfo {
  // What a text begins and ends with, as the tokenizer's own configuration says.
  std::vector<int32_t> prefix = {};
  std::vector<int32_t> suffix = {};
  // The token that ends a text; -1: none is known.
  int32_t end = -1;
  // Token ids.
  uint32_t vocab = 0;
  bool has_chat_template = false;
};

// One call at a time.
class TextTokenizer {
 public:
  virtual ~TextTokenizer() = default;

  virtual const TokenizerInfo& info() const = 0;

  // Without the prefix and the suffix. Possible errors: INVALID_ARGUMENT (the reason), and those of what does
  // it.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) = 0;
  // Of several texts, as quickly as can be: one result for each, in their order, with the errors of Encode.
  // Where it cannot be told at which text the tokenizer stopped, those with it have its error.
  virtual std::vector<absl::StatusOr<std::vector<int32_t>>> EncodeAll(const std::vector<std::string>& texts) {
    std::vector<absl::StatusOr<std::vector<int32_t>>> all;
    for (const std::string& text : texts) all.push_back(Encode(text));
    return all;
  }
  // Without special tokens.
  virtual absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) = 0;
  // `messages`: a JSON list of {"role": "user", "content": "..."}. With `add_generation_prompt` the text ends
  // where an answer begins. Possible errors: FAILED_PRECONDITION (there is no chat template),
  // INVALID_ARGUMENT (what the template says).
  virtual absl::StatusOr<std::string> Render(const std::string& messages, bool add_generation_prompt) = 0;
};

}  // namespace penstock
