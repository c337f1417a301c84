#include "worker/tokenizer/composed_form.h"

#include <stdlib.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/types/span.h"

namespace penstock::worker {
namespace {

struct Range {
  utf8proc_int32_t first;
  utf8proc_int32_t last;
};

// Marks with a combining class, and two that compose (U+11930, U+11935), of Unicode 10 to 15. Found by
// normalizing every code point between two marks with tokenizers 0.23 (tests/bench/tokenizers).
constexpr std::array kNewMarks = std::to_array<Range>(
    {{0x07fd, 0x07fd},   {0x0898, 0x089f},   {0x08ca, 0x08d3},   {0x09fe, 0x09fe},   {0x0c3c, 0x0c3c},
     {0x0d3b, 0x0d3c},   {0x0eba, 0x0eba},   {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
     {0xa82c, 0xa82c},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
     {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
     {0x11930, 0x11930}, {0x11935, 0x11935}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
     {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
     {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
     {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}});

// What has another form that is compatible since Unicode 10 to 15. Found likewise.
constexpr std::array kNewForms = std::to_array<Range>({{0x32ff, 0x32ff},
                                                       {0xa7f2, 0xa7f4},
                                                       {0xab69, 0xab69},
                                                       {0x10781, 0x10785},
                                                       {0x10787, 0x107b0},
                                                       {0x107b2, 0x107ba},
                                                       {0x1e030, 0x1e06d},
                                                       {0x1f16c, 0x1f16c},
                                                       {0x1fbf0, 0x1fbf9}});

bool IsIn(absl::Span<const Range> ranges, utf8proc_int32_t code) {
  const auto found =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](utf8proc_int32_t at, const Range& range) { return at < range.first; });
  return found != ranges.begin() && code <= (found - 1)->last;
}

std::string Composed(const std::string& text, bool compatible) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE |
                                                  (compatible ? UTF8PROC_COMPAT : 0)));
  if (bytes < 0) return text;
  std::string result(reinterpret_cast<const char*>(composed), static_cast<size_t>(bytes));
  free(composed);
  return result;
}

// Form C, or KC where `compatible`.
std::string ToForm(const std::string& text, bool compatible) {
  std::string result;
  // Of what has no new mark in it yet.
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = -1;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    const size_t next = at + static_cast<size_t>(std::max<utf8proc_ssize_t>(bytes, 1));
    if (bytes > 0 && (IsIn(kNewMarks, code) || (compatible && IsIn(kNewForms, code)))) {
      result += Composed(text.substr(begin, at - begin), compatible);
      result += text.substr(at, next - at);
      begin = next;
    }
    at = next;
  }
  return result + Composed(text.substr(begin), compatible);
}

}  // namespace

std::string ToNfc(const std::string& text) { return ToForm(text, /*compatible=*/false); }

std::string ToNfkc(const std::string& text) { return ToForm(text, /*compatible=*/true); }

}  // namespace penstock::worker
