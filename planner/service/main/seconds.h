// Metrics are in seconds, messages in nanoseconds.
#pragma once

#include <cstdint>

namespace penstock {

inline double Seconds(int64_t nanoseconds) {
  constexpr double kNanosecondsPerSecond = 1e9;
  return static_cast<double>(nanoseconds) / kNanosecondsPerSecond;
}

}  // namespace penstock
