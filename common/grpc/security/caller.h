// Who makes a call, and what a caller may be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

enum class Role : uint8_t {
  // Anyone who reaches the port: may ask for health.
  kNobody,
  // Reads.
  kViewer,
  // A rank of a job.
  kWorker,
  // Registers jobs and feeds them.
  kClient,
  // Everything.
  kOperator,
};

struct Caller {
  Role role = Role::kNobody;
  // Whose jobs are its own; empty: nobody's.
  std::string owner;
};

// "viewer", "worker", "client", "operator"; nothing for other words: nobody is no role to be given.
std::optional<Role> RoleFromName(absl::string_view name);
absl::string_view RoleName(Role role);

// From a URI of a certificate's subject alternative names:
//
//   spiffe://TRUST-DOMAIN/penstock/ROLE
//   spiffe://TRUST-DOMAIN/penstock/ROLE/OWNER
//
// The authority that signed the certificate vouches for the trust domain. Nothing where the URI is another.
std::optional<Caller> CallerFromUri(absl::string_view uri);

// Whether `name` may be an owner: 1 to 128 letters, digits, '-', '_', '.' and '@'.
bool IsOwnerName(absl::string_view name);

}  // namespace penstock
