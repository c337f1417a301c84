// Values with names, kept where strangers read and write: who does not know the secret learns neither names
// nor values and can make no value that is believed.
//
//   const SealedValues sealed(secret, "rendezvous of epoch 3");
//   table[sealed.HiddenName("rank 0")] = *sealed.Seal("rank 0", "10.0.0.1:4711");
//   PENSTOCK_ASSIGN_OR_RETURN(std::string address, sealed.Open("rank 0", table[sealed.HiddenName("rank
//   0")]));
//
// A value is encrypted and authenticated together with its name (AES-256-GCM, NIST SP 800-38D, a random nonce
// each time), so that one cannot be put in another's place. Names are HMAC-SHA-256. The keys are made from
// the secret and the purpose; what is sealed for one purpose is not opened for another. An older value of the
// same name and purpose can be put back: give a name one value. A stranger who writes can destroy values.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Thread-safe. Its text is in no message.
class SealedValues {
 public:
  SealedValues(absl::string_view secret, absl::string_view purpose);

  // 64 hexadecimal digits.
  std::string HiddenName(absl::string_view name) const;

  // Possible errors: INTERNAL (the cipher is not to be had).
  absl::StatusOr<std::string> Seal(absl::string_view name, absl::string_view value) const;

  // Possible errors: UNAUTHENTICATED (not sealed with this secret, for this purpose, under this name, or
  // changed since).
  absl::StatusOr<std::string> Open(absl::string_view name, absl::string_view sealed) const;

 private:
  std::string name_key_;
  std::string value_key_;
};

}  // namespace penstock
