// Tokens of tokenizer.json that are found in a text before it is cut: special ones, and those that were added
// to a vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/tokenizer/normalizer.h"

namespace penstock::worker {

class AddedTokens {
 public:
  // Of the part `added_tokens`. Possible errors: INVALID_ARGUMENT (single_word, which is not known).
  static absl::StatusOr<AddedTokens> Create(const nlohmann::json& json, const Normalizer& normalizer);

  // Of a text, in order: a token, or normalized text between them, never empty.
  struct Section {
    // -1: it is text.
    int32_t token = -1;
    std::string text = {};
    // It is where the whole text begins.
    bool is_first = false;
  };
  std::vector<Section> Cut(const std::string& text, const Normalizer& normalizer) const;

  // Special tokens are no text. -1: there is no such token.
  bool IsSpecial(int32_t token) const { return special_.contains(token); }
  // Null: it is of the model's own vocabulary alone.
  const std::string* ContentOf(int32_t token) const;
  // The largest id; -1: there are none.
  int32_t largest() const { return content_.empty() ? -1 : content_.rbegin()->first; }

 private:
  struct Added {
    std::string text;
    int32_t id = -1;
    bool takes_spaces_before = false;
    bool takes_spaces_behind = false;
  };
  // Those that are looked for at once, the longest of the leftmost first.
  struct Set {
    std::map<std::string, Added, std::less<>> by_text;
    size_t longest = 0;
    // First bytes.
    std::set<char> begins;

    const Added* LongestAt(std::string_view text, size_t at) const;
  };
  static void Insert(Added added, Set& set);
  static std::vector<Section> CutBy(const Set& set, const std::string& text, bool is_first);

  Set before_normalizing_;
  Set behind_normalizing_;
  std::map<int32_t, std::string> content_;
  std::set<int32_t> special_;
};

}  // namespace penstock::worker
