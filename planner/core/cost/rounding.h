// Whole nanoseconds and bytes.
#pragma once

#include <cstdint>

namespace penstock::core {

// The nearest integer of a number that is not negative and below 2^53; halves go up. Searches round millions
// of times, and std::llround is a call.
inline int64_t RoundToInteger(double value) { return static_cast<int64_t>(value + 0.5); }

}  // namespace penstock::core
