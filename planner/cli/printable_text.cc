#include "planner/cli/printable_text.h"

#include <cstddef>
#include <cstdint>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace penstock::cli {
namespace {

// Bytes of the UTF-8 character that the text begins with; 0 if it begins with none (Unicode 15, table 3-7).
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto follows = [&](size_t i, uint8_t least, uint8_t most) {
    return byte(i) >= least && byte(i) <= most;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool second = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return second && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// Of a whole character: below the space, delete, and the control characters of Latin-1.
bool IsControl(absl::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\n') || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

}  // namespace

std::string PrintableText(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const absl::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length > 0 && !IsControl(character)) {
      absl::StrAppend(&printable, character);
    } else {
      for (const char byte : character)
        absl::StrAppend(&printable, "\\x", absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
    }
    text.remove_prefix(character.size());
  }
  return printable;
}

void PrintOut(absl::string_view text) { std::cout << PrintableText(text); }

}  // namespace penstock::cli
