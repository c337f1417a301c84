#include "common/grpc/security/access_control.h"

#include <grpc/grpc_security_constants.h>

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// What follows "Bearer "; empty: no token.
absl::string_view TokenOf(const AccessControl::Metadata& metadata) {
  const auto found = metadata.find("authorization");
  if (found == metadata.end()) return {};
  absl::string_view value = View(found->second);
  return absl::ConsumePrefix(&value, "Bearer ") ? value : absl::string_view();
}

Caller CallerOfCertificate(const grpc::AuthContext& connection) {
  // Set as well where nobody has shown a certificate, but to nothing that was verified.
  if (!connection.IsPeerAuthenticated()) return {};
  for (const grpc::string_ref& uri : connection.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    if (std::optional<Caller> caller = CallerFromUri(View(uri)); caller.has_value()) return *caller;
  }
  return {};
}

}  // namespace

Caller AccessControl::Identify(const Metadata& metadata, const grpc::AuthContext& connection) const {
  const absl::string_view token = TokenOf(metadata);
  if (tokens_ != nullptr && !token.empty()) return tokens_->Find(token).value_or(Caller{});
  return CallerOfCertificate(connection);
}

absl::Status AccessControl::Admit(const Caller& caller, absl::string_view method) const {
  if (may_call_(caller.role, method)) return absl::OkStatus();
  if (caller.role == Role::kNobody) {
    return absl::UnauthenticatedError(absl::StrCat(
        method, ": this planner wants to know who calls: give a certificate (--tls-cert, --tls-key) ",
        "or a token (--token-file) that it knows"));
  }
  return absl::PermissionDeniedError(absl::StrCat(method, ": a ", RoleName(caller.role), " may not call it"));
}

}  // namespace penstock
