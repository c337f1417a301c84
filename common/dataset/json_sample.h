// One line of a JSONL dataset as a sample of tokens.
//
//   {"tokens": [5, 7, 9]}                     learnt whole
//   {"input": [5, 7], "target": [9]}          the target is learnt
//   {"tokens": [5, 7, 9], "labels": [-100, 7, 9]}      7 and 9 are learnt; so with "loss_mask": [0, 1, 1]
//   {"tokens": [5, 7, 9], "weights": [0, 1, 0.5]}      what each token weighs in the loss
//   {"input": [5], "target": [7, 9], "weights": [1, 0.5]}   with a target, masks and weights are of it
//   {"text": "To be"}                         its UTF-8 bytes as tokens 0 to 255, learnt whole
//
// With a tokenizer there are more forms (text_sample.h). Each line may have a "weight", by which those of its
// tokens are multiplied. Other names: "input_ids" of "tokens", "assistant_masks" and "completion_mask"
// (TRL's) of "loss_mask". Tokens before the first one that is learnt are input. Other fields are ignored, but
// for those that would change what is learnt.
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
  // What each token of the target weighs in the loss; empty: 1.
  std::vector<float> weights = {};
};

// Refuses a field that would change what is learnt if it were read. Possible errors: INVALID_ARGUMENT.
absl::Status CheckMeansNothing(const std::string& field);

// A weight in a line. Possible errors: INVALID_ARGUMENT (it is not finite, or below 0), naming `field`.
absl::StatusOr<float> CheckedWeight(const std::string& field, double weight);

// Multiplies all weights of the sample.
void MultiplyWeights(float weight, TokenSample& sample);

// Possible errors: INVALID_ARGUMENT (not JSON, or not one of the forms above; names the column or the field).
absl::StatusOr<TokenSample> ParseJsonSample(std::string_view line);

}  // namespace penstock
