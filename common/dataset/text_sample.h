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

#include <cstdint>
#include <optional>
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

// A sample before its texts are tokens.
struct SampleText {
  // Becomes tokens by itself.
  struct Piece {
    std::string text;
    // In the loss, of each of its tokens.
    float weight = 1;
    // Of an answer, the message that it is of: it has to have a token.
    std::optional<size_t> message = {};
  };
  std::optional<std::string> input = {};
  std::vector<Piece> target = {};
  // Whether the tokenizer's prefix and suffix are added, where no template has written them. What is learnt
  // ends with its end of text once.
  bool begins_input = false;
  bool ends_input = false;
  bool begins_target = false;
  bool ends_target = false;
  // Of the line.
  float weight = 1;
};

// A line in one of the two forms.
struct SampleLine {
  std::vector<TokenSample> tokens = {};
  std::vector<SampleText> texts = {};
};

// What a line has. The tokenizer renders conversations, and makes no tokens. Possible errors: as
// TokenizeJsonSample.
absl::StatusOr<SampleLine> ReadJsonSample(std::string_view line, TextTokenizer& tokenizer,
                                          Conversations conversations = Conversations::kWhole);
// A text, learnt whole.
SampleLine WholeText(std::string text);

// The samples of each line, whose texts become tokens together. Possible errors of a line: its own, those of
// the tokenizer.
std::vector<absl::StatusOr<std::vector<TokenSample>>> TokenizeAll(
    const std::vector<absl::StatusOr<SampleLine>>& lines, TextTokenizer& tokenizer);

// The samples of a line. Possible errors: INVALID_ARGUMENT (not JSON, or not one of these forms: names the
// field; a conversation without an answer, or whose template does not put what comes later behind what was
// before), those of the tokenizer.
absl::StatusOr<std::vector<TokenSample>> TokenizeJsonSample(
    std::string_view line, TextTokenizer& tokenizer, Conversations conversations = Conversations::kWhole);

}  // namespace penstock
