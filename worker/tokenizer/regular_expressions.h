// The regular expressions of a tokenizer.json as Hugging Face's library reads them (Oniguruma), for libraries
// that read them otherwise (RE2, PCRE2).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/status.h"

namespace penstock::worker {

// Writes the spaces of \s and \S out, and GPT-2's expression where a ByteLevel has it without saying so.
// Possible errors: INVALID_ARGUMENT (an expression with \w, \d, \b or the like: names it).
absl::Status WriteExpressionsOut(nlohmann::json& tokenizer);

}  // namespace penstock::worker
