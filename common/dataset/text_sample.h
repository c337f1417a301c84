// One line of a JSONL dataset of text as samples of tokens, with a model's tokenizer.
//
//   {"text": "To be"}                                     learnt whole
//   {"prompt": "To be", "completion": " or not"}          the completion is learnt
//   {"messages": [{"role": "user", "content": "Hi"},      each answer is learnt, as a sample of its own with
//                 {"role": "assistant", ...}, ...]}       the conversation before it as its input
//   {"conversations": [{"from": "human", "value": ...}]}  the same in ShareGPT's words
//   {"instruction": "Add", "input": "1 2", "output": "3"}  a conversation of two messages; "input" may be
//   missing
//   {"input": "translate: To be", "target": "Sein"}       of a T5: both as its tokenizer ends them
//
// "prompt" and "completion" may be lists of messages, too. Lines of tokens are those of json_sample.h. What
// is learnt ends with the tokenizer's end of text. Other fields are ignored, but for those that would change
// what is learnt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/json_sample.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

// The samples of a line. Possible errors: INVALID_ARGUMENT (not JSON, or not one of these forms: names the
// field; a conversation without an answer, or whose template does not put what comes later behind what was
// before), those of the tokenizer.
absl::StatusOr<std::vector<TokenSample>> TokenizeJsonSample(std::string_view line, TextTokenizer& tokenizer);

// A text, learnt whole. Possible errors: those of the tokenizer.
absl::StatusOr<TokenSample> TokenizeText(const std::string& text, TextTokenizer& tokenizer);

}  // namespace penstock
