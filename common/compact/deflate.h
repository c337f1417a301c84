// zlib (RFC 1950) in memory, with a limit of what may come out.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

std::string Deflate(absl::string_view bytes);

// Possible errors: INVALID_ARGUMENT (no whole zlib stream, or something behind it), RESOURCE_EXHAUSTED (more
// than `most_bytes` come out; no more than that are ever held).
absl::StatusOr<std::string> Inflate(absl::string_view deflated, size_t most_bytes);

}  // namespace penstock
