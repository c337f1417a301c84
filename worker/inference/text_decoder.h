// Asks a model for one token after the other.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<TextDecoder> decoder, StartDecoder(model, prompt, most));
//   for (...) {
//     const int32_t token = sampler.Choose(decoder->logits());
//     PENSTOCK_RETURN_IF_ERROR(decoder->Append(token));
//   }
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/inference/language_model.h"

namespace penstock::worker {

class TextDecoder {
 public:
  virtual ~TextDecoder() = default;

  // [vocab], at least float32: of the token that comes next.
  const at::Tensor& logits() const { return logits_; }
  // Possible errors: OUT_OF_RANGE (more tokens than were asked for), RESOURCE_EXHAUSTED (memory), INTERNAL.
  virtual absl::Status Append(int32_t token) = 0;

 protected:
  at::Tensor logits_;
};

// A decoder behind `prompt`, which for a GPT is the beginning of the text and has a token, and for a T5 what
// the encoder reads. It will be asked for at most `most` tokens. `model` outlives it.
//
// A GPT keeps keys and values of all its tokens, so that a token is computed once. A T5 keeps what the
// encoder made, and computes its decoder anew for each token: its outputs are short.
//
// Possible errors: INVALID_ARGUMENT (no prompt, or a token that is not below the vocabulary), OUT_OF_RANGE
// (prompt and tokens have more positions than the model), RESOURCE_EXHAUSTED (memory), INTERNAL.
absl::StatusOr<std::unique_ptr<TextDecoder>> StartDecoder(const LanguageModel& model,
                                                          const std::vector<int32_t>& prompt, int64_t most);

}  // namespace penstock::worker
