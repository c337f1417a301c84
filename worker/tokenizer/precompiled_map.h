// SentencePiece's table of what characters become, as tokenizer.json has it ("Precompiled"): of Unicode's
// form KC and more (https://github.com/google/sentencepiece, doc/normalization.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::worker {

class PrecompiledMap {
 public:
  // `charsmap`: the bytes of precompiled_charsmap, without base64. Possible errors: INVALID_ARGUMENT.
  static absl::StatusOr<PrecompiledMap> Create(const std::string& charsmap);

  // As Hugging Face's library applies it: to a cluster of characters that people see as one, where it has
  // fewer than 6 bytes, by the shortest begin of it that the table has; else to each character of it.
  std::string Normalized(const std::string& text) const;

 private:
  PrecompiledMap(std::vector<uint32_t> trie, std::string replacements)
      : trie_(std::move(trie)), replacements_(std::move(replacements)) {}

  void AddCluster(std::string_view cluster, std::string& result) const;
  // What the shortest begin of the text becomes; nothing: the table has none.
  std::optional<std::string_view> Replacement(std::string_view text) const;
  // Of the array; 0 behind its end.
  uint32_t UnitAt(size_t node) const { return node < trie_.size() ? trie_[node] : 0; }

  // A double array (https://github.com/s-yata/darts-clone), the leaves of which are places in replacements_,
  // each ended by a 0.
  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace penstock::worker
