#include "common/grpc/security/pem_files.h"

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/annotate.h"

namespace penstock {
namespace {

constexpr unsigned kLookAgainSeconds = 2;

absl::Status CheckHolds(const std::string& path, absl::string_view flag, absl::string_view mark,
                        absl::string_view thing) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return AnnotateError(text.status(), flag);
  if (absl::StrContains(*text, mark)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": '", path, "' holds no ", thing, " in PEM"));
}

}  // namespace

absl::Status CheckGoTogether(const std::string& certificate, const std::string& key) {
  if (certificate.empty() == key.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--tls-cert and --tls-key go together: give both or neither");
}

absl::Status CheckCertificateFile(const std::string& path, absl::string_view what) {
  return CheckHolds(path, what, "-----BEGIN CERTIFICATE-----", "certificate");
}

absl::Status CheckKeyFile(const std::string& path, absl::string_view what) {
  return CheckHolds(path, what, "PRIVATE KEY-----", "private key");
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> WatchFiles(const std::string& certificate,
                                                                             const std::string& key,
                                                                             const std::string& authority) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(key, certificate, authority,
                                                                              kLookAgainSeconds);
}

}  // namespace penstock
