// What `penstock up` needs to know of the machine it runs on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::cli {

// Bytes that new processes can take without swapping (MemAvailable of /proc/meminfo).
absl::StatusOr<int64_t> AvailableMemoryBytes();

// "NVIDIA H100 80GB HBM3": what GPUs this machine has, each kind once, as the driver says below `folder`;
// empty where it says nothing.
std::vector<std::string> GpuModels(const std::string& folder = "/proc/driver/nvidia/gpus");

// Where measured profiles are kept: PENSTOCK_CACHE, or ~/.cache/penstock.
std::string CacheFolder();

}  // namespace penstock::cli
