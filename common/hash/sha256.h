// SHA-256 of bytes, and of messages: the content hashes of batches and plans.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// 32 bytes. For display use absl::BytesToHexString.
std::string Sha256(absl::string_view bytes);

}  // namespace penstock
