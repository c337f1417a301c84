#include "common/secret/random_secret.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace penstock {

absl::StatusOr<std::string> RandomSecret() {
  std::string secret(kSecretBytes, '\0');
  if (getentropy(secret.data(), secret.size()) == 0) return secret;
  return absl::InternalError(
      absl::StrCat("the operating system gave no random bytes for a secret: ", std::strerror(errno)));
}

}  // namespace penstock
