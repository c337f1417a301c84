// How long the agent waits for the planner.
#pragma once

#include "absl/time/time.h"

namespace penstock::worker {

// Of one short call.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(2);
// Pauses before a call is made again grow from the first to the longest.
inline constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
inline constexpr absl::Duration kLongestRetry = absl::Seconds(1);

}  // namespace penstock::worker
