#include "common/hash/crc32.h"

#include <zlib.h>

namespace penstock {

uint32_t Crc32(absl::string_view bytes, uint32_t before) {
  // zlib takes a null pointer for the question what to begin with.
  if (bytes.empty()) return before;
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace penstock
