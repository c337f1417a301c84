// The tokens that a model goes on from, and those that end its text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct Prompt {
  std::vector<int32_t> tokens;
  // They are the bytes of a text, and so is what follows.
  bool as_bytes = false;
};

// Of `text` or of `tokens`, of which one is empty. Text is taken for bytes where the model was trained on
// bytes: it has 256 tokens at most, and came without a tokenizer. `folder`: of the model (model_folder.h).
// Possible errors: INVALID_ARGUMENT (both or none; a model with other tokens, or none of this byte: says to
// give
// --tokens).
absl::StatusOr<Prompt> PromptOf(const std::string& folder, const v1::ModelSpec& model,
                                const std::string& text, const std::vector<int32_t>& tokens);

// eos_token_id of generation_config.json, or where it says nothing of config.json; none where the model came
// without them. Possible errors: INVALID_ARGUMENT (names the file), those of ReadFile.
absl::StatusOr<std::vector<int32_t>> EndTokens(const std::string& folder);

}  // namespace penstock::cli
