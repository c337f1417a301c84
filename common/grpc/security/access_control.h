// Who calls, and whether they may: asked by gRPC before a call reaches its handler, and by handlers that look
// at what the call is about.
//
// A caller is known by a URI of its certificate (caller.h), or by a token in the metadata "authorization:
// Bearer TOKEN"; a token counts where both are there. Health may be asked for by everyone.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/string_ref.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/grpc/security/caller.h"
#include "common/grpc/security/token_table.h"

namespace penstock {

// Thread-safe.
class AccessControl {
 public:
  using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;
  // Whether a role may call a method, "/package.Service/Method". Called by any thread.
  using MayCall = std::function<bool(Role role, absl::string_view method)>;

  // `tokens` may be null: callers have certificates.
  AccessControl(MayCall may_call, std::unique_ptr<TokenTable> tokens)
      : may_call_(std::move(may_call)), tokens_(std::move(tokens)) {}

  Caller Identify(const Metadata& metadata, const grpc::AuthContext& connection) const;

  // Possible errors: UNAUTHENTICATED (the caller is nobody), PERMISSION_DENIED (its role may not); both name
  // the method.
  absl::Status Admit(const Caller& caller, absl::string_view method) const;

 private:
  const MayCall may_call_;
  const std::unique_ptr<TokenTable> tokens_;
};

}  // namespace penstock
