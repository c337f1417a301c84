// Characters of UTF-8 text. What is none counts byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::worker {

// Bytes of the character that begins at `at`, at least 1 and at most to the end of the text.
inline size_t CharacterBytes(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  size_t bytes = 1;
  if (first >= 0xf0) {
    bytes = 4;
  } else if (first >= 0xe0) {
    bytes = 3;
  } else if (first >= 0xc0) {
    bytes = 2;
  }
  return at + bytes <= text.size() ? bytes : 1;
}

// White_Space of Unicode, of the character at the begin of the text; 0: it is none, else its bytes.
size_t SpaceBytes(std::string_view text);
// The same of the character at the end.
size_t SpaceBytesAtEnd(std::string_view text);

}  // namespace penstock::worker
