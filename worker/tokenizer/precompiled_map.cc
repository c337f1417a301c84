#include "worker/tokenizer/precompiled_map.h"

#include <utf8proc.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "worker/tokenizer/utf8.h"

namespace penstock::worker {
namespace {

// Clusters of as many bytes are replaced character by character.
constexpr size_t kLongCluster = 6;

utf8proc_int32_t CodeAt(std::string_view text, size_t at) {
  utf8proc_int32_t code = -1;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                   static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  return code;
}

// Where the cluster that begins at `begin` ends (Unicode Standard Annex 29).
size_t EndOfCluster(std::string_view text, size_t begin) {
  utf8proc_int32_t state = 0;
  utf8proc_int32_t last = CodeAt(text, begin);
  size_t end = begin + CharacterBytes(text, begin);
  while (end < text.size()) {
    const utf8proc_int32_t next = CodeAt(text, end);
    if (last < 0 || next < 0 || utf8proc_grapheme_break_stateful(last, next, &state)) break;
    end += CharacterBytes(text, end);
    last = next;
  }
  return end;
}

}  // namespace

absl::StatusOr<PrecompiledMap> PrecompiledMap::Create(const std::string& charsmap) {
  uint32_t bytes = 0;
  if (charsmap.size() >= sizeof(bytes)) std::memcpy(&bytes, charsmap.data(), sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || sizeof(bytes) + bytes > charsmap.size())
    return absl::InvalidArgumentError("precompiled_charsmap: is no table of SentencePiece's");
  std::vector<uint32_t> trie(bytes / sizeof(uint32_t));
  std::memcpy(trie.data(), charsmap.data() + sizeof(bytes), bytes);
  return PrecompiledMap(std::move(trie), charsmap.substr(sizeof(bytes) + bytes));
}

std::optional<std::string_view> PrecompiledMap::Replacement(std::string_view text) const {
  // Of a unit: bit 8 it has a leaf, bits 0 to 7 and 31 its label, bits 10 to 30 its offset, times 256 with
  // bit 9. Of a leaf: bits 0 to 30 its value.
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); };
  size_t node = offset(UnitAt(0));
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) break;
    node ^= byte;
    const uint32_t unit = UnitAt(node);
    if ((unit & ((1U << 31) | 0xff)) != byte) break;
    node ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    const size_t place = UnitAt(node) & ((1U << 31) - 1);
    if (place > replacements_.size()) break;
    const size_t end = replacements_.find('\0', place);
    return std::string_view(replacements_).substr(place, end == std::string::npos ? end : end - place);
  }
  return std::nullopt;
}

void PrecompiledMap::AddCluster(std::string_view cluster, std::string& result) const {
  if (cluster.size() < kLongCluster) {
    if (const auto whole = Replacement(cluster)) {
      result += *whole;
      return;
    }
  }
  for (size_t at = 0; at < cluster.size();) {
    const std::string_view character = cluster.substr(at, CharacterBytes(cluster, at));
    result += Replacement(character).value_or(character);
    at += character.size();
  }
}

std::string PrecompiledMap::Normalized(const std::string& text) const {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = EndOfCluster(text, at);
    AddCluster(std::string_view(text).substr(at, end - at), result);
    at = end;
  }
  return result;
}

}  // namespace penstock::worker
