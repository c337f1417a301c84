#include "common/secret/derived_key.h"

#include "absl/strings/str_cat.h"
#include "common/hash/hmac_sha256.h"

namespace penstock {

std::string DeriveKey(absl::string_view secret, absl::string_view purpose) {
  return HmacSha256(secret, absl::StrCat("penstock ", purpose, absl::string_view("\x01", 1)));
}

}  // namespace penstock
