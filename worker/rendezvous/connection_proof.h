// How the two ends of a connection to an epoch's table show each other that they have the epoch's secret,
// before anything else is said:
//
//   table:  a random challenge
//   caller: a random challenge, and the MAC over both
//   table:  its own MAC over both
//
// A MAC is HMAC-SHA-256 with a key of the secret, and says which end made it: what another connection was
// told, or told, is of no use. The bytes that follow are not encrypted.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock::worker {

inline constexpr size_t kChallengeBytes = 32;
inline constexpr size_t kProofBytes = 32;

struct Challenges {
  std::string of_table;
  std::string of_caller;
};

// Of the secret of an epoch; for both functions below.
std::string ConnectionKey(absl::string_view secret);

std::string CallerProof(absl::string_view key, const Challenges& challenges);
std::string TableProof(absl::string_view key, const Challenges& challenges);

}  // namespace penstock::worker
