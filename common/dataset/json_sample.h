// One line of a JSONL dataset as a sample of tokens.
//
//   {"tokens": [5, 7, 9]}                     learnt whole
//   {"input": [5, 7], "target": [9]}          the target is learnt
//   {"tokens": [5, 7, 9], "labels": [-100, -100, 9]}   the same; so is "loss_mask": [0, 0, 1]
//   {"text": "To be"}                         its UTF-8 bytes as tokens 0 to 255, learnt whole
//
// With a tokenizer there are more forms (text_sample.h). "input_ids" is another name of "tokens". What is
// learnt is the end of a sample: labels or masks that learn something else are refused, and so are weights.
// Other fields are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

struct TokenSample {
  std::vector<int32_t> input;
  std::vector<int32_t> target;
};

// Refuses a field that would change what is learnt if it were read. Possible errors: INVALID_ARGUMENT.
absl::Status CheckMeansNothing(const std::string& field);

// Possible errors: INVALID_ARGUMENT (not JSON, or not one of the forms above; names the column or the field).
absl::StatusOr<TokenSample> ParseJsonSample(std::string_view line);

}  // namespace penstock
