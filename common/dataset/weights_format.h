// The layout of a .weights file, which stands beside .idx and .bin where tokens have weights in the loss.
// Little-endian.
//
//   offset  0   magic "PENSTWGT"                      8 bytes
//           8   version, 1                            uint64
//          16   tokens, T                             uint64   (as many as .bin has)
//          24   CRC-32 of the .idx file               uint32
//          28   distinct weights, W, 0 to 256         uint32
//          32   the distinct weights                  float32[W]
//    32 + 4 W   of each token, in the order of .bin:  uint8[T], which of them; where W is 0, float32[T]
//
// Masks take one byte a token. Tokens of inputs, which are not learnt, have the weight 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::weights_format {

inline constexpr std::string_view kMagic("PENSTWGT", 8);
inline constexpr uint64_t kVersion = 1;
inline constexpr size_t kMostDistinct = 256;

struct Header {
  char magic[8] = {};
  uint64_t version = kVersion;
  uint64_t tokens = 0;
  uint32_t index_crc32 = 0;
  uint32_t distinct = 0;
};
static_assert(sizeof(Header) == 32, "as the layout above");

}  // namespace penstock::weights_format
