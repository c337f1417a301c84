// The iteration that a refused submission may be retried from, carried by an absl::Status as a payload and by
// gRPC as the trailing metadata `penstock-retry-iteration`.
//
//   return WithRetryIteration(absl::ResourceExhaustedError("..."), 17);
//   if (std::optional<uint64_t> iteration = RetryIteration(status)) Resubmit(*iteration);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock {

// The payload's type and the metadata's key.
inline constexpr char kRetryIterationKey[] = "penstock-retry-iteration";

inline absl::Status WithRetryIteration(absl::Status status, uint64_t iteration) {
  status.SetPayload(kRetryIterationKey, absl::Cord(absl::StrCat(iteration)));
  return status;
}

inline std::optional<uint64_t> RetryIteration(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryIterationKey);
  uint64_t iteration = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &iteration)) return std::nullopt;
  return iteration;
}

}  // namespace penstock
