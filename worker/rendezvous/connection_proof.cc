#include "worker/rendezvous/connection_proof.h"

#include "absl/strings/str_cat.h"
#include "common/hash/hmac_sha256.h"
#include "common/secret/derived_key.h"

namespace penstock::worker {
namespace {

std::string Proof(absl::string_view key, absl::string_view of, const Challenges& challenges) {
  return HmacSha256(key, absl::StrCat(of, "\n", challenges.of_table, challenges.of_caller));
}

}  // namespace

std::string ConnectionKey(absl::string_view secret) { return DeriveKey(secret, "rendezvous connections"); }

std::string CallerProof(absl::string_view key, const Challenges& challenges) {
  return Proof(key, "caller", challenges);
}

std::string TableProof(absl::string_view key, const Challenges& challenges) {
  return Proof(key, "table", challenges);
}

}  // namespace penstock::worker
