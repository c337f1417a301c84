// Text of an encoder-decoder (text_decoder.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/inference/text_decoder.h"

namespace penstock::worker {

// `input`: tokens of the vocabulary, at least one. Possible errors: those of StartDecoder.
absl::StatusOr<std::unique_ptr<TextDecoder>> StartEncoderDecoderText(const LanguageModel& model,
                                                                     const std::vector<int32_t>& input);

}  // namespace penstock::worker
