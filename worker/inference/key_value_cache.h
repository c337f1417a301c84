// Text of a GPT whose keys and values are kept (text_decoder.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/inference/text_decoder.h"

namespace penstock::worker {

// `prompt`: tokens of the vocabulary, at least one. The cache has room for the prompt and `most` tokens, in
// every layer 2 x key-value heads x width of a head numbers a token. Possible errors: those of StartDecoder.
absl::StatusOr<std::unique_ptr<TextDecoder>> StartCachedText(const LanguageModel& model,
                                                             const std::vector<int32_t>& prompt,
                                                             int64_t most);

}  // namespace penstock::worker
