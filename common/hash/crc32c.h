// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of TensorFlow's records.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace penstock {

// A table of 256 entries, a byte at a time: for short records.
uint32_t Crc32c(absl::string_view bytes);

}  // namespace penstock
