#include "worker/inference/encoder_decoder_text.h"

#include <ATen/ATen.h>

#include "common/status/status_macros.h"
#include "worker/inference/packed_samples.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

class EncoderDecoderText : public TextDecoder {
 public:
  EncoderDecoderText(const LanguageModel& model, std::vector<int32_t> input) : model_(model) {
    sample_.input = std::move(input);
  }

  absl::Status Append(int32_t token) override {
    sample_.target.push_back(token);
    return Ask();
  }

  // What follows the target so far.
  absl::Status Ask() {
    SampleTokensOf asked = sample_;
    // The decoder reads the target without its last token: this one is asked for.
    asked.target.push_back(0);
    PENSTOCK_ASSIGN_OR_RETURN(const TokenBatch tokens, PackSamples(model_, {asked}));
    return RunTorch("generating", [&] {
      if (!source_.defined()) source_ = model_.Encode(tokens);
      const at::Tensor hidden = model_.Decode(tokens, source_);
      logits_ = model_.Logits(hidden.narrow(0, hidden.size(0) - 1, 1))[0];
    });
  }

 private:
  const LanguageModel& model_;
  SampleTokensOf sample_;
  at::Tensor source_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextDecoder>> StartEncoderDecoderText(const LanguageModel& model,
                                                                     const std::vector<int32_t>& input) {
  auto text = std::make_unique<EncoderDecoderText>(model, input);
  PENSTOCK_RETURN_IF_ERROR(text->Ask());
  return text;
}

}  // namespace penstock::worker
