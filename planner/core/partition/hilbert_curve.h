// The Hilbert curve through a square of 2^16 by 2^16 cells (Hilbert 1891), by the bit-wise walk of Warren's
// "Hacker's Delight", chapter 16.
#pragma once

#include <cstdint>
#include <utility>

namespace penstock::core {

inline constexpr int kHilbertBits = 16;

// The place of cell (x, y) on the curve. Coordinates are below 2^16.
inline uint32_t HilbertPlace(uint32_t x, uint32_t y) {
  uint32_t place = 0;
  for (int bit = kHilbertBits - 1; bit >= 0; --bit) {
    const uint32_t right = x >> bit & 1;
    const uint32_t up = y >> bit & 1;
    place = place << 2 | ((3 * right) ^ up);
    if (up == 1) continue;
    // The lower quadrants are turned.
    if (right == 1) {
      x = ~x;
      y = ~y;
    }
    std::swap(x, y);
  }
  return place;
}

}  // namespace penstock::core
