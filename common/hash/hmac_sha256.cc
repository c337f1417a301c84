#include "common/hash/hmac_sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

namespace penstock {

std::string HmacSha256(absl::string_view key, absl::string_view bytes) {
  std::string mac(SHA256_DIGEST_LENGTH, '\0');
  // A null key would stand for the one of an earlier call.
  const char* const key_bytes = key.empty() ? "" : key.data();
  HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       reinterpret_cast<unsigned char*>(mac.data()), nullptr);
  return mac;
}

bool IsSameMac(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace penstock
