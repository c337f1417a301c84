// Which quota of an owner refused a call, carried by the status as a payload: who counts refusals need not
// read messages.
//
//   return RefusedBy(OwnerQuota::kJobs, "owner 'a' has 48 jobs ..., the quota: ... raise --jobs-of-owner");
//   if (std::optional<OwnerQuota> quota = QuotaThatRefused(status)) Count(*quota);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "penstock/client/refused_quota.h"

namespace penstock {

enum class OwnerQuota : uint8_t { kJobs, kUnstartedJobs, kStreams, kSamples, kPlanning };
// By OwnerQuota, as metrics name them.
inline constexpr absl::string_view kQuotaNames[] = {"jobs", "unstarted_jobs", "streams", "samples",
                                                    "planning_seconds"};
inline constexpr size_t kOwnerQuotas = 5;

// RESOURCE_EXHAUSTED. `message` names the quota, its flag, and what to do.
inline absl::Status RefusedBy(OwnerQuota quota, absl::string_view message) {
  return WithQuota(absl::ResourceExhaustedError(message),
                   std::string(kQuotaNames[static_cast<size_t>(quota)]));
}

// Nullopt: none did.
inline std::optional<OwnerQuota> QuotaThatRefused(const absl::Status& status) {
  const std::optional<std::string> named = QuotaNamedBy(status);
  if (!named.has_value()) return std::nullopt;
  for (size_t quota = 0; quota < kOwnerQuotas; ++quota)
    if (*named == kQuotaNames[quota]) return static_cast<OwnerQuota>(quota);
  return std::nullopt;
}

}  // namespace penstock
