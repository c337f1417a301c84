#include "common/secret/incarnation.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/hash/sha256.h"
#include "common/secret/derived_key.h"

namespace penstock {
namespace {

uint64_t FirstBytes(absl::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes.substr(0, sizeof(number))) number = number << 8 | static_cast<uint8_t>(byte);
  return std::max<uint64_t>(number, 1);
}

}  // namespace

uint64_t IncarnationDigest(uint64_t incarnation) {
  return FirstBytes(Sha256(absl::StrCat("incarnation ", incarnation)));
}

uint64_t IncarnationOf(absl::string_view key, uint64_t join) {
  return FirstBytes(DeriveKey(key, absl::StrCat("incarnation ", join)));
}

}  // namespace penstock
