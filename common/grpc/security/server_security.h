// How a server proves who it is and learns who calls.
//
//   ServerSecurity security({.certificate = "tls.crt", .key = "tls.key", .client_authority = "ca.crt"});
//   PENSTOCK_ASSIGN_OR_RETURN(auto secured, Secure(security, may_call));
//   StartServer({.listen = ..., .services = ..., .credentials = secured.credentials});
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grpc/security/access_control.h"

namespace penstock {

// Paths of PEM files, and of tokens (token_table.h); empty: none. They are read again when they change.
struct ServerSecurity {
  std::string certificate;
  std::string key;
  // Who signs the certificates of callers.
  std::string client_authority;
  std::string tokens;

  bool encrypts() const { return !certificate.empty(); }
  bool knows_callers() const { return !client_authority.empty() || !tokens.empty(); }
};

struct SecuredServer {
  // Null: neither encrypted nor guarded.
  std::shared_ptr<grpc::ServerCredentials> credentials;
  // Null: everyone may do everything.
  std::shared_ptr<const AccessControl> access;
};

// Possible errors: INVALID_ARGUMENT (files that do not go together, or are no PEM; names the flag), NOT_FOUND
// and PERMISSION_DENIED (a file cannot be read; names flag and file).
absl::StatusOr<SecuredServer> Secure(const ServerSecurity& security, AccessControl::MayCall may_call);

// Stands for all methods that no service of this program has: strangers make up any number.
inline constexpr absl::string_view kOtherMethod = "other";

// A call that was refused before its handler.
struct RefusedCall {
  // "GetJob", or kOtherMethod.
  absl::string_view method;
  grpc::StatusCode code = grpc::StatusCode::OK;
  Caller caller = {};
};

// Called by any thread; must not block.
using RefusalObserver = std::function<void(const RefusedCall&)>;

// Before a server with these credentials is started.
void TellOfRefusals(const SecuredServer& secured, RefusalObserver refused);

}  // namespace penstock
