// Starts the tokenizer of a model.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer_process.h"

namespace penstock::cli {

// `path`: tokenizer.json, tokenizer.model or spiece.model, or a folder that holds one: Hugging Face's, that
// of a model that was imported, or of a run that began with one. Possible errors: UNAVAILABLE
// (penstock-tokenizer is not beside this program, or does not start), and those of TokenizerProcess::Start.
absl::StatusOr<std::unique_ptr<TokenizerProcess>> StartTokenizer(const std::string& path);

// Whether a model folder or a run has a tokenizer that came with its model.
bool HasTokenizer(const std::string& folder);

}  // namespace penstock::cli
