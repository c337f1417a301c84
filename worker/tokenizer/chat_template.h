// A conversation as text, by the template of the model (Jinja).
//
// Done by onnxruntime-extensions (PyPI), whose library is opened at run time, apart from all others: it
// brings copies of libraries that pytorch-tokenizers brings too. Declarations here are those of its C
// interface (include/ortx_tokenizer.h, ortx_utils.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/tokenizer/tokenizer_files.h"

namespace penstock::worker {

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  // `messages`: a JSON list of {"role": "user", "content": "..."}. Possible errors: INVALID_ARGUMENT (what
  // the template says of them).
  virtual absl::StatusOr<std::string> Render(const std::string& messages,
                                             bool add_generation_prompt) const = 0;
};

// Possible errors: FAILED_PRECONDITION (the model has no template), UNAVAILABLE (the library cannot be
// opened), INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<ChatTemplate>> MakeChatTemplate(const TokenizerFiles& files);

}  // namespace penstock::worker
