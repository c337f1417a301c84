// Which quota of an owner refused a call, carried by an absl::Status as a payload and by gRPC as the trailing
// metadata `penstock-owner-quota`. Quotas: docs/operations.md.
//
//   if (std::optional<std::string> quota = QuotaNamedBy(status)) WaitUntilItIsPaidFor(*quota);
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace penstock {

// The payload's type and the metadata's key.
inline constexpr char kQuotaKey[] = "penstock-owner-quota";

// `quota`: as the metric penstock_owner_refusals_total names it.
inline absl::Status WithQuota(absl::Status status, const std::string& quota) {
  status.SetPayload(kQuotaKey, absl::Cord(quota));
  return status;
}

// Nullopt: none did.
inline std::optional<std::string> QuotaNamedBy(const absl::Status& status) {
  const auto payload = status.GetPayload(kQuotaKey);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace penstock
