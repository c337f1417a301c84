// Units that people read and write, in those of the contract.
#pragma once

#include <cmath>
#include <cstdint>

namespace penstock::cli {

inline constexpr double kNanosecondsPerMillisecond = 1e6;
inline constexpr double kBytesPerMegabyte = 1e6;

inline double Milliseconds(int64_t ns) { return static_cast<double>(ns) / kNanosecondsPerMillisecond; }
inline double Megabytes(int64_t bytes) { return static_cast<double>(bytes) / kBytesPerMegabyte; }

// To the nearest byte: --memory-mb means the same to every command.
inline int64_t BytesOfMegabytes(double megabytes) { return std::llround(megabytes * kBytesPerMegabyte); }

}  // namespace penstock::cli
