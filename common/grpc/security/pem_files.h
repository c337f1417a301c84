// Certificates and keys in PEM files, looked at before gRPC does, which would say nothing of what is wrong
// with them but that handshakes fail.
#pragma once

#include <grpcpp/security/tls_certificate_provider.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// --tls-cert and --tls-key are given together or not at all. Possible errors: INVALID_ARGUMENT.
absl::Status CheckGoTogether(const std::string& certificate, const std::string& key);

// `what` stands in front of errors: the flag. Possible errors: those of ReadFile; INVALID_ARGUMENT (holds no
// certificate, or no private key).
absl::Status CheckCertificateFile(const std::string& path, absl::string_view what);
absl::Status CheckKeyFile(const std::string& path, absl::string_view what);

// Reads the files again within a few seconds after they have changed; connections that are there stay.
// `certificate` and `key` are both empty or neither, as is `authority`.
std::shared_ptr<grpc::experimental::CertificateProviderInterface> WatchFiles(const std::string& certificate,
                                                                             const std::string& key,
                                                                             const std::string& authority);

}  // namespace penstock
