// CRC-32 (ISO-HDLC, as in gzip): tells bytes that have changed by accident.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace penstock {

// Of all parts one after the other: Crc32(second, Crc32(first)).
uint32_t Crc32(absl::string_view bytes, uint32_t before = 0);

}  // namespace penstock
