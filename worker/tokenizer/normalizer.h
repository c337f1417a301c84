// How tokenizer.json changes texts before it cuts them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::worker {

// UTF-8 in and out.
using Normalizer = std::function<std::string(const std::string& text)>;

// Of the part `normalizer`, null included: Sequence, NFC, NFKC, Precompiled, Prepend, Replace and Strip.
// Possible errors: INVALID_ARGUMENT (names a kind that is not known).
absl::StatusOr<Normalizer> MakeNormalizer(const nlohmann::json& json);

}  // namespace penstock::worker
