// Which of the samples of an import are kept for validation.
#pragma once

#include <cstdint>

namespace penstock {

// Whether number `number` of what is read, counted from 0, is one of the share, which is at least 0 and
// below 1. As if drawn by chance, and always the same: by the finalizer of splitmix64 (Steele, Lea and Flood
// 2014, "Fast splittable pseudorandom number generators").
inline bool IsForValidation(uint64_t number, double share) {
  uint64_t bits = (number + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  // 53 bits are all that a double has.
  return static_cast<double>(bits >> 11) < share * 9007199254740992.0;
}

}  // namespace penstock
