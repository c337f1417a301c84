#include "common/grpc/security/caller.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

constexpr std::array<std::pair<Role, absl::string_view>, 4> kRoles = {{{Role::kViewer, "viewer"},
                                                                       {Role::kWorker, "worker"},
                                                                       {Role::kClient, "client"},
                                                                       {Role::kOperator, "operator"}}};
constexpr size_t kLongestOwner = 128;

}  // namespace

std::optional<Role> RoleFromName(absl::string_view name) {
  for (const auto& [role, its_name] : kRoles)
    if (name == its_name) return role;
  return std::nullopt;
}

absl::string_view RoleName(Role role) {
  for (const auto& [its_role, name] : kRoles)
    if (role == its_role) return name;
  return "nobody";
}

bool IsOwnerName(absl::string_view name) {
  return !name.empty() && name.size() <= kLongestOwner && std::ranges::all_of(name, [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
  });
}

std::optional<Caller> CallerFromUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, "spiffe://")) return std::nullopt;
  // TRUST-DOMAIN, "penstock", ROLE, perhaps OWNER.
  const std::vector<absl::string_view> parts = absl::StrSplit(uri, '/');
  constexpr size_t kWithoutOwner = 3;
  if (parts.size() < kWithoutOwner || parts.size() > kWithoutOwner + 1 || parts[1] != "penstock") {
    return std::nullopt;
  }
  const std::optional<Role> role = RoleFromName(parts[2]);
  if (!role.has_value()) return std::nullopt;
  if (parts.size() == kWithoutOwner) return Caller{.role = *role, .owner = {}};
  if (!IsOwnerName(parts.back())) return std::nullopt;
  return Caller{.role = *role, .owner = std::string(parts.back())};
}

}  // namespace penstock
