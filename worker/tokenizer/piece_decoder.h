// How tokenizer.json makes text of pieces, where words have a mark for a space.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::worker {

// Pieces become others, which are the text one behind the other.
using PieceDecoder = std::function<std::vector<std::string>(std::vector<std::string> pieces)>;

// Of the part `decoder`, null included: Sequence, Metaspace, Replace, ByteFallback, Fuse and Strip. Possible
// errors: INVALID_ARGUMENT (names a kind that is not known).
absl::StatusOr<PieceDecoder> MakePieceDecoder(const nlohmann::json& json);

}  // namespace penstock::worker
