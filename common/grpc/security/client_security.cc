#include <grpcpp/security/tls_credentials_options.h>

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/grpc/security/certificate_dates.h"
#include "common/grpc/security/handshake.h"
#include "common/grpc/security/pem_files.h"
#include "common/grpc/security/token_table.h"
#include "common/grpc/status_conversion.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "penstock/client/security.h"

namespace penstock {
namespace {

// Somebody may wait for the words.
constexpr absl::Duration kExplainFor = absl::Seconds(1);

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  for (const unsigned char c : token) {
    if (!absl::ascii_isgraph(c))
      return absl::InvalidArgumentError(absl::StrCat("'", path, "' holds more than one token"));
  }
  if (token.size() < kShortestToken) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' holds no token of at least ", kShortestToken, " characters"));
  }
  return std::string(token);
}

// Puts the token of a file into each call.
class TokenOfFile final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenOfFile(std::string path) : path_(std::move(path)) {}

  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    const absl::StatusOr<std::string> token = ReadToken(path_);
    if (!token.ok()) return ToGrpcStatus(AnnotateError(token.status(), "--token-file"));
    metadata->emplace("authorization", absl::StrCat("Bearer ", *token));
    return grpc::Status::OK;
  }

 private:
  const std::string path_;
};

absl::Status Check(const ClientSecurity& security) {
  PENSTOCK_RETURN_IF_ERROR(CheckGoTogether(security.certificate, security.key));
  if (!security.encrypts()) {
    for (const auto& [flag, value] :
         {std::pair("--tls-cert", &security.certificate), std::pair("--token-file", &security.token),
          std::pair("--tls-server-name", &security.server_name)}) {
      if (!value->empty()) return absl::InvalidArgumentError(absl::StrCat(flag, " needs --tls-ca"));
    }
    return absl::OkStatus();
  }
  const absl::Time now = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(CheckCertificateFile(security.authority, "--tls-ca"));
  PENSTOCK_RETURN_IF_ERROR(CheckSomeAuthorityIsValid(security.authority, "--tls-ca", now));
  if (!security.token.empty())
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(ReadToken(security.token).status(), "--token-file"));
  if (security.certificate.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckCertificateFile(security.certificate, "--tls-cert"));
  PENSTOCK_RETURN_IF_ERROR(CheckChainIsValid(security.certificate, "--tls-cert", now));
  return CheckKeyFile(security.key, "--tls-key");
}

}  // namespace

absl::StatusOr<ChannelSecurity> SecurityOfChannels(const ClientSecurity& security) {
  PENSTOCK_RETURN_IF_ERROR(Check(security));
  if (!security.encrypts()) return ChannelSecurity{};
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(WatchFiles(security.certificate, security.key, security.authority));
  options.watch_root_certs();
  if (!security.certificate.empty()) options.watch_identity_key_cert_pairs();
  std::shared_ptr<grpc::ChannelCredentials> encrypted = grpc::experimental::TlsCredentials(options);
  if (!security.token.empty()) {
    encrypted = grpc::CompositeChannelCredentials(
        encrypted, grpc::MetadataCredentialsFromPlugin(std::make_unique<TokenOfFile>(security.token)));
  }
  return ChannelSecurity{.credentials = std::move(encrypted),
                         .server_name = security.server_name,
                         .explain = [security](const std::string& addresses) {
                           return ExplainHandshake(addresses, security, kExplainFor);
                         }};
}

}  // namespace penstock
