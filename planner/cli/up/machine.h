// What `penstock up` needs to know of the machine it runs on.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::cli {

// Folder of the running binary, where the other binaries are.
absl::StatusOr<std::string> BinaryFolder();

// Bytes that new processes can take without swapping (MemAvailable of /proc/meminfo).
absl::StatusOr<int64_t> AvailableMemoryBytes();

// Where measured profiles are kept: PENSTOCK_CACHE, or ~/.cache/penstock.
std::string CacheFolder();

}  // namespace penstock::cli
