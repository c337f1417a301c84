// Whole nanoseconds and bytes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::core {

// More nanoseconds than a plan may take and more bytes than a rank may have (contract/limits.h), and so
// little that thousands of them can be added up.
inline constexpr double kMostRounded = static_cast<double>(int64_t{3} << 49);

// The nearest integer of a number that is not negative; halves go up, and above kMostRounded it is that.
// Searches round millions of times, and std::llround is a call.
inline int64_t RoundToInteger(double value) {
  return static_cast<int64_t>(std::min(value, kMostRounded) + 0.5);
}

}  // namespace penstock::core
