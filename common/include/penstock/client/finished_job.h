// That a call is refused because its job is finished, carried by an absl::Status as a payload and by gRPC as
// the trailing metadata `penstock-finished-job`: the iterations that the job has done. A worker that is
// started again after the end of its job has nothing left to do, and that is no failure.
//
//   return WithFinishedJob(absl::FailedPreconditionError("..."), 100);
//   if (std::optional<uint64_t> iterations = FinishedJob(status)) return Nothing();
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
inline constexpr char kFinishedJobKey[] = "penstock-finished-job";

inline absl::Status WithFinishedJob(absl::Status status, uint64_t iterations) {
  status.SetPayload(kFinishedJobKey, absl::Cord(absl::StrCat(iterations)));
  return status;
}

inline std::optional<uint64_t> FinishedJob(const absl::Status& status) {
  const auto payload = status.GetPayload(kFinishedJobKey);
  uint64_t iterations = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &iterations)) return std::nullopt;
  return iterations;
}

}  // namespace penstock
