// What a planner that does not lead says beside its answer. A refusal names the leader, carried by an
// absl::Status as a payload and by gRPC as the trailing metadata `penstock-standby`. An answer from the store
// has that metadata, too (empty where nobody is known to lead), and `penstock-standby-age-ms`.
//
//   return WithLeader(absl::UnavailableError("..."), "planner-a:7070");
//   if (std::optional<std::string> leader = LeaderNamedBy(status)) AskThere(*leader);
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"

namespace penstock {

// The payload's type and the metadata's key.
inline constexpr char kStandbyKey[] = "penstock-standby";
// Of answers alone: milliseconds since the store was read.
inline constexpr char kStandbyAgeKey[] = "penstock-standby-age-ms";

// Of an answer that a standby gave.
struct StandbyWords {
  // Where the leader is reached, by its own --advertise; empty: nobody is known to lead.
  std::string leader;
  // Since the store was read. What was committed since is not in the answer.
  absl::Duration age;
};

inline absl::Status WithLeader(absl::Status status, const std::string& leader) {
  status.SetPayload(kStandbyKey, absl::Cord(leader));
  return status;
}

// Of a standby's refusal.
inline std::optional<std::string> LeaderNamedBy(const absl::Status& status) {
  const auto payload = status.GetPayload(kStandbyKey);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace penstock
