// How many iterations of a job may be planned ahead.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"

namespace penstock::core {

// JobSpec.look_ahead_window where it is 0.
inline constexpr uint32_t kDefaultLookAhead = 16;

inline uint32_t LookAheadOf(const v1::JobSpec& job) {
  return job.look_ahead_window() == 0 ? kDefaultLookAhead : job.look_ahead_window();
}

}  // namespace penstock::core
