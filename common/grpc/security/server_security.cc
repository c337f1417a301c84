#include "common/grpc/security/server_security.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <utility>

#include "common/grpc/security/pem_files.h"
#include "common/grpc/served_method.h"
#include "common/grpc/status_conversion.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Asks AccessControl before gRPC looks for the handler: reflection and methods that nobody has are guarded,
// too.
class Gate final : public grpc::AuthMetadataProcessor {
 public:
  Gate(std::shared_ptr<const AccessControl> access, RefusalObserver refused)
      : access_(std::move(access)), refused_(std::move(refused)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const absl::string_view method = path == metadata.end()
                                         ? absl::string_view()
                                         : absl::string_view(path->second.data(), path->second.size());
    const Caller caller = access_->Identify(metadata, *connection);
    const grpc::Status admitted = ToGrpcStatus(access_->Admit(caller, method));
    if (!admitted.ok() && refused_) {
      const auto* served = FindServedMethod(method);
      refused_({.method = served == nullptr ? kOtherMethod : absl::string_view(served->name()),
                .code = admitted.error_code(),
                .caller = caller});
    }
    return admitted;
  }

 private:
  const std::shared_ptr<const AccessControl> access_;
  const RefusalObserver refused_;
};

absl::Status Check(const ServerSecurity& security) {
  PENSTOCK_RETURN_IF_ERROR(CheckGoTogether(security.certificate, security.key));
  if (!security.encrypts()) {
    if (!security.client_authority.empty())
      return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
    if (!security.tokens.empty()) {
      return absl::InvalidArgumentError(
          "--tokens needs --tls-cert and --tls-key: a token that is not encrypted is everybody's");
    }
    return absl::OkStatus();
  }
  PENSTOCK_RETURN_IF_ERROR(CheckCertificateFile(security.certificate, "--tls-cert"));
  PENSTOCK_RETURN_IF_ERROR(CheckKeyFile(security.key, "--tls-key"));
  if (security.client_authority.empty()) return absl::OkStatus();
  return CheckCertificateFile(security.client_authority, "--tls-client-ca");
}

std::shared_ptr<grpc::ServerCredentials> Credentials(const ServerSecurity& security) {
  grpc::experimental::TlsServerCredentialsOptions options(
      WatchFiles(security.certificate, security.key, security.client_authority));
  options.watch_identity_key_cert_pairs();
  if (!security.client_authority.empty()) {
    options.watch_root_certs();
    // Who has none is nobody and may ask for health; who has one that is not the authority's is not let in.
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace

absl::StatusOr<SecuredServer> Secure(const ServerSecurity& security, AccessControl::MayCall may_call) {
  PENSTOCK_RETURN_IF_ERROR(Check(security));
  SecuredServer secured;
  if (!security.encrypts()) return secured;
  secured.credentials = Credentials(security);
  if (!security.knows_callers()) return secured;
  std::unique_ptr<TokenTable> tokens;
  if (!security.tokens.empty()) {
    absl::StatusOr<std::unique_ptr<TokenTable>> opened = TokenTable::Open(security.tokens);
    if (!opened.ok()) return AnnotateError(opened.status(), "--tokens");
    tokens = *std::move(opened);
  }
  secured.access = std::make_shared<AccessControl>(std::move(may_call), std::move(tokens));
  secured.credentials->SetAuthMetadataProcessor(std::make_shared<Gate>(secured.access, nullptr));
  return secured;
}

void TellOfRefusals(const SecuredServer& secured, RefusalObserver refused) {
  if (secured.access == nullptr) return;
  secured.credentials->SetAuthMetadataProcessor(std::make_shared<Gate>(secured.access, std::move(refused)));
}

}  // namespace penstock
