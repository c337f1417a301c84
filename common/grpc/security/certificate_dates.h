// From when until when certificates are valid: gRPC says of one that is over only that handshakes fail, or
// that a socket was closed.
#pragma once

#include <openssl/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace penstock {

struct CertificateDates {
  absl::Time begin;
  absl::Time end;
};

// Possible errors: INVALID_ARGUMENT (it has none).
absl::StatusOr<CertificateDates> DatesOf(const X509& certificate);

// Of all certificates in a text of PEM, in their order. Possible errors: INVALID_ARGUMENT (holds none, or one
// that is damaged).
absl::StatusOr<std::vector<CertificateDates>> DatesOfCertificates(const std::string& pem);

// The span in which all certificates of a file are valid: of a chain, when it is.
// Possible errors: those of ReadFile and above; `flag` stands in front.
absl::StatusOr<CertificateDates> DatesOfChain(const std::string& path, absl::string_view flag);

// Of a file that says who one is: all of its certificates are valid at `now`.
// Possible errors: FAILED_PRECONDITION (expired, or not valid yet; says since when), those of DatesOfChain.
absl::Status CheckChainIsValid(const std::string& path, absl::string_view flag, absl::Time now);

// Of a file of authorities: one of its certificates is valid at `now`. Possible errors as above.
absl::Status CheckSomeAuthorityIsValid(const std::string& path, absl::string_view flag, absl::Time now);

// "2026-11-26 12:00:00 UTC"
std::string DateText(absl::Time time);

}  // namespace penstock
