// How tokenizer.json cuts a text into words before it looks for pieces, where words have a mark for a space.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::worker {

struct Word {
  std::string text;
  // It is where the whole text begins.
  bool is_first = false;
};

// Of words, in order, those that they are cut into; none is empty.
using WordCut = std::function<std::vector<Word>(std::vector<Word> words)>;

// Of the part `pre_tokenizer`, null included: Sequence, Metaspace, WhitespaceSplit, and Split by a text.
// Possible errors: INVALID_ARGUMENT (names a kind that is not known).
absl::StatusOr<WordCut> MakeWordCut(const nlohmann::json& json);

}  // namespace penstock::worker
