// What `penstock-worker generate` prints of the tokens of a model, as they come.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const auto text, MakeGeneratedText(options));
//   PENSTOCK_ASSIGN_OR_RETURN(const std::string next, text->Append(token));
//   out << next;
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/text_tokenizer.h"
#include "worker/runtime/worker_options.h"

namespace penstock::worker {

class GeneratedText {
 public:
  virtual ~GeneratedText() = default;

  // What there is to print now that this token has come; with a tokenizer nothing, where it ends within a
  // character. What would command a terminal is '?'. Possible errors: those of the tokenizer.
  virtual absl::StatusOr<std::string> Append(int32_t token) = 0;
};

// `tokenizer` is not null.
std::unique_ptr<GeneratedText> TextOfTokenizer(std::unique_ptr<TextTokenizer> tokenizer);

// Text of the model's tokenizer, bytes, or numbers. Possible errors: those of TokenizerProcess::Start.
absl::StatusOr<std::unique_ptr<GeneratedText>> MakeGeneratedText(const GenerateOptions& options);

}  // namespace penstock::worker
