#include "worker/tokenizer/utf8.h"

#include <algorithm>
#include <array>

namespace penstock::worker {
namespace {

constexpr auto kSpaces = std::to_array<std::string_view>(
    {"\t",           "\n",           "\v",           "\f",           "\r",           " ",
     "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
     "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
     "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
     "\xe3\x80\x80"});

}  // namespace

size_t SpaceBytes(std::string_view text) {
  const auto* const found = std::find_if(kSpaces.begin(), kSpaces.end(),
                                         [&](std::string_view space) { return text.starts_with(space); });
  return found == kSpaces.end() ? 0 : found->size();
}

size_t SpaceBytesAtEnd(std::string_view text) {
  const auto* const found = std::find_if(kSpaces.begin(), kSpaces.end(),
                                         [&](std::string_view space) { return text.ends_with(space); });
  return found == kSpaces.end() ? 0 : found->size();
}

}  // namespace penstock::worker
