// The iteration that a refused submission may be retried from, carried by an absl::Status as a payload and by
// gRPC as the trailing metadata `penstock-retry-iteration`.
//
//   return WithRetryIteration(absl::ResourceExhaustedError("..."), 17);
//   if (std::optional<uint64_t> iteration = RetryIteration(status)) Resubmit(*iteration);
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "penstock/client/number_payload.h"

namespace penstock {

// The payload's type and the metadata's key.
inline constexpr char kRetryIterationKey[] = "penstock-retry-iteration";

inline absl::Status WithRetryIteration(absl::Status status, uint64_t iteration) {
  return WithNumber(std::move(status), kRetryIterationKey, iteration);
}

inline std::optional<uint64_t> RetryIteration(const absl::Status& status) {
  return NumberOf(status, kRetryIterationKey);
}

}  // namespace penstock
