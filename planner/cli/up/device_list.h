// What the workers run on, as `penstock up --device` names it:
//
//   cpu, simulated
//   cuda                 a GPU for each worker, from cuda:0 on
//   cuda:0..3            these four, one a worker
//   cuda:0,2,5..7        the same, with gaps
//
// With --hosts the numbers are those of each host's GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::cli {

enum class UpDevice : uint8_t {
  kCpu,
  // Workers take the times of a cost profile and compute nothing (docs/operations.md).
  kSimulated,
  kCuda,
};

struct DeviceList {
  UpDevice kind = UpDevice::kCpu;
  // Of kCuda: the numbers that were named, in the order of ranks; empty: as many as there are workers.
  std::vector<uint32_t> gpus = {};
  // As it was given, for people.
  std::string name = "cpu";
};

// Case does not matter. Possible errors: INVALID_ARGUMENT (says what is wrong and what to use; does not name
// the flag).
absl::StatusOr<DeviceList> ParseDevices(absl::string_view text);

// The GPU of each of the job's ranks, which are all on this machine. Possible errors: INVALID_ARGUMENT (names
// --device and both numbers, where as many GPUs are not named).
absl::StatusOr<std::vector<uint32_t>> GpuOfEachRank(const DeviceList& devices, uint32_t ranks);

// The same where `hosts` has the host of each rank: the first rank of a host has the first GPU there. A host
// runs as many ranks as GPUs are named, or (cuda) as it has slots. Possible errors: INVALID_ARGUMENT (names
// --device and the host).
absl::StatusOr<std::vector<uint32_t>> GpuOfEachRank(const DeviceList& devices,
                                                    const std::vector<std::string>& hosts);

}  // namespace penstock::cli
