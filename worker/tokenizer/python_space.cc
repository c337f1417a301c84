#include "worker/tokenizer/python_space.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace penstock::worker {
namespace {

// str.isspace() of CPython's Unicode database; ranges, both ends included.
constexpr std::array<std::array<utf8proc_int32_t, 2>, 10> kSpaces = {{{0x9, 0xd},
                                                                      {0x1c, 0x20},
                                                                      {0x85, 0x85},
                                                                      {0xa0, 0xa0},
                                                                      {0x1680, 0x1680},
                                                                      {0x2000, 0x200a},
                                                                      {0x2028, 0x2029},
                                                                      {0x202f, 0x202f},
                                                                      {0x205f, 0x205f},
                                                                      {0x3000, 0x3000}}};

bool IsSpace(utf8proc_int32_t code) {
  return code >= 0 && std::any_of(kSpaces.begin(), kSpaces.end(),
                                  [code](const auto& range) { return code >= range[0] && code <= range[1]; });
}

// Of the character at `at`; its bytes, 0 where there is none.
size_t SpaceAt(const std::string& text, size_t at) {
  utf8proc_int32_t code = -1;
  const utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                                  static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  return bytes > 0 && IsSpace(code) ? static_cast<size_t>(bytes) : 0;
}

// Where the character before `end` begins.
size_t BeginOfLast(const std::string& text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

}  // namespace

std::string StripLeft(const std::string& text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t bytes = SpaceAt(text, begin);
    if (bytes == 0) break;
    begin += bytes;
  }
  return text.substr(begin);
}

std::string StripRight(const std::string& text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = BeginOfLast(text, end);
    if (SpaceAt(text, begin) != end - begin) break;
    end = begin;
  }
  return text.substr(0, end);
}

}  // namespace penstock::worker
