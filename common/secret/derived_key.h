// Keys for several uses of one secret.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// 32 bytes that follow from the secret and the purpose, and tell nothing of the keys for other purposes:
// HKDF's expansion (RFC 5869) of one block. `secret` is random (random_secret.h).
std::string DeriveKey(absl::string_view secret, absl::string_view purpose);

}  // namespace penstock
