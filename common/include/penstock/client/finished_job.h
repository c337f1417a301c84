// That a call is refused because its job is finished, carried by an absl::Status as a payload and by gRPC as
// the trailing metadata `penstock-finished-job`: the iterations that the job has done. A worker that is
// started again after the end of its job has nothing left to do, and that is no failure.
//
//   return WithFinishedJob(absl::FailedPreconditionError("..."), 100);
//   if (std::optional<uint64_t> iterations = FinishedJob(status)) return Nothing();
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "penstock/client/number_payload.h"

namespace penstock {

// The payload's type and the metadata's key.
inline constexpr char kFinishedJobKey[] = "penstock-finished-job";

inline absl::Status WithFinishedJob(absl::Status status, uint64_t iterations) {
  return WithNumber(std::move(status), kFinishedJobKey, iterations);
}

inline std::optional<uint64_t> FinishedJob(const absl::Status& status) {
  return NumberOf(status, kFinishedJobKey);
}

}  // namespace penstock
