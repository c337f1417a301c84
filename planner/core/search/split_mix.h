// splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): the same
// sequence on every machine.
#pragma once

#include <cstdint>

namespace penstock::core {

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform below `limit`, which must be above 0 and below 2^32.
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(((Next() >> 32) * limit) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace penstock::core
