// The tokens that a model goes on from, and those that end its text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/text_tokenizer.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct PromptRequest {
  // One of the two is empty.
  std::string text = {};
  std::vector<int32_t> tokens = {};
  // The text is a user's message, and what follows is the answer.
  bool chat = false;
};

struct Prompt {
  std::vector<int32_t> tokens;
  // They are the bytes of a text, and so is what follows.
  bool as_bytes = false;
};

// `tokenizer`: the model's; null where it came without one, and its text is taken for bytes, if it has 256
// tokens at most. Possible errors: INVALID_ARGUMENT (both or none; a model with other tokens, or none of this
// byte: says to give --tokens; a conversation without a chat template), those of the tokenizer.
absl::StatusOr<Prompt> PromptOf(const v1::ModelSpec& model, const PromptRequest& request,
                                TextTokenizer* tokenizer);

// eos_token_id of generation_config.json, or where it says nothing of config.json; none where the model came
// without them. Possible errors: INVALID_ARGUMENT (names the file), those of ReadFile.
absl::StatusOr<std::vector<int32_t>> EndTokens(const std::string& folder);

}  // namespace penstock::cli
