// One line of a JSONL dataset of text as samples of tokens, with a model's tokenizer.
//
//   {"text": "To be"}                                     learnt whole
//   {"prompt": "To be", "completion": " or not"}          the completion is learnt
//   {"messages": [{"role": "user", "content": "Hi"},      the answers are learnt, all else is read; a
//   "weight"
//                 {"role": "assistant", ...}, ...]}       of a message is that of its tokens
//   {"conversations": [{"from": "human", "value": ...}]}  the same in ShareGPT's words
//   {"instruction": "Add", "input": "1 2", "output": "3"}  a conversation of two messages; "input" may be
//   missing
//   {"input": "translate: To be", "target": "Sein"}       of a T5: both as its tokenizer ends them
//
// "prompt" and "completion" may be lists of messages, too. Each line may have a "weight". Lines of tokens are
// those of json_sample.h. What is learnt ends with the tokenizer's end of text. Other fields are ignored, but
// for those that would change what is learnt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/json_sample.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

// What becomes of a conversation of several answers.
enum class Conversations : uint8_t {
  // One sample, what is between the answers masked: each token is computed once. Where the template writes an
  // earlier answer otherwise when more follows (it drops what the model was thinking, say), as kEachAnswer:
  // else another text would be learnt than the one that the model is to write.
  kWhole,
  // A sample for each answer, with all before it as its input.
  kEachAnswer,
};

// The samples of a line. Possible errors: INVALID_ARGUMENT (not JSON, or not one of these forms: names the
// field; a conversation without an answer, or whose template does not put what comes later behind what was
// before), those of the tokenizer.
absl::StatusOr<std::vector<TokenSample>> TokenizeJsonSample(
    std::string_view line, TextTokenizer& tokenizer, Conversations conversations = Conversations::kWhole);

// A text, learnt whole. Possible errors: those of the tokenizer.
absl::StatusOr<TokenSample> TokenizeText(const std::string& text, TextTokenizer& tokenizer);

}  // namespace penstock
