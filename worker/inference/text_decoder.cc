#include "worker/inference/text_decoder.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/inference/encoder_decoder_text.h"
#include "worker/inference/key_value_cache.h"

namespace penstock::worker {
namespace {

absl::Status CheckPrompt(const LanguageModel& model, const std::vector<int32_t>& prompt, int64_t most) {
  const ModelConfig& config = model.config();
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt is empty: it needs a token");
  for (const int32_t token : prompt) {
    if (token < 0 || token >= config.vocab)
      return absl::InvalidArgumentError(
          absl::StrCat("the prompt has token ", token, ": the vocabulary has ", config.vocab, " tokens"));
  }
  const int64_t all = static_cast<int64_t>(prompt.size()) + most;
  if (config.architecture == Architecture::kT5 || all <= config.max_sequence_length) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("the prompt has ", prompt.size(), " tokens, and with ", most,
                                            " more the text has more than the model's ",
                                            config.max_sequence_length, " positions: ask for fewer"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextDecoder>> StartDecoder(const LanguageModel& model,
                                                          const std::vector<int32_t>& prompt, int64_t most) {
  PENSTOCK_RETURN_IF_ERROR(CheckPrompt(model, prompt, most));
  if (model.config().architecture == Architecture::kT5) return StartEncoderDecoderText(model, prompt);
  return StartCachedText(model, prompt, most);
}

}  // namespace penstock::worker
