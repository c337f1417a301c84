// HMAC-SHA-256 (RFC 2104): tells who knows a key from who does not.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// 32 bytes.
std::string HmacSha256(absl::string_view key, absl::string_view bytes);

// Whether two of them are the same; takes as long wherever they differ, so that a forger learns nothing from
// the time.
bool IsSameMac(absl::string_view a, absl::string_view b);

}  // namespace penstock
