#include "common/tracing/trace_parent.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

constexpr size_t kVersionDigits = 2;
constexpr size_t kTraceIdDigits = 32;
constexpr size_t kSpanIdDigits = 16;
constexpr size_t kFlagsDigits = 2;
// As long as any that must be passed on (section 3.3.1.5).
constexpr size_t kMostState = 512;

bool IsHex(absl::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// Ids of zeros alone are none.
bool IsId(absl::string_view text, size_t digits) {
  return IsHex(text, digits) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

std::optional<SpanLink> ParseTraceParent(absl::string_view header, absl::string_view state) {
  const std::vector<absl::string_view> fields = absl::StrSplit(header, '-');
  constexpr size_t kFields = 4;
  if (fields.size() < kFields || !IsHex(fields[0], kVersionDigits) || fields[0] == "ff") return std::nullopt;
  // Later versions may have more of them.
  if (fields[0] == "00" && fields.size() != kFields) return std::nullopt;
  if (!IsId(fields[1], kTraceIdDigits) || !IsId(fields[2], kSpanIdDigits) || !IsHex(fields[3], kFlagsDigits))
    return std::nullopt;
  return SpanLink{.trace_id = absl::HexStringToBytes(fields[1]),
                  .span_id = absl::HexStringToBytes(fields[2]),
                  .flags = static_cast<uint8_t>(absl::HexStringToBytes(fields[3])[0]),
                  .state = state.size() <= kMostState ? std::string(state) : std::string()};
}

}  // namespace penstock
