// Units of an analytic profile's file.
#pragma once

namespace penstock::core {

inline constexpr double kNsPerMs = 1e6;
inline constexpr double kBytesPerMb = 1e6;

}  // namespace penstock::core
