// Secrets that nobody can guess.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace penstock {

// Bytes of a secret: as many as SHA-256 and AES-256 make use of.
inline constexpr size_t kSecretBytes = 32;

// kSecretBytes from the operating system's cryptographic source. Blocks only on a machine that has just
// started and has no randomness yet.
// Possible errors: INTERNAL (the system has no such source).
absl::StatusOr<std::string> RandomSecret();

}  // namespace penstock
