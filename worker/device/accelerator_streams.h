// The streams of a GPU, by the interface that LibTorch has for all accelerators.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/device_streams.h"

namespace penstock::worker {

// `place` is the device of the calling thread from then on. Computing has its default stream, on which
// everything outside an iteration runs too. Possible errors: INTERNAL (there is no such device).
absl::StatusOr<std::unique_ptr<DeviceStreams>> MakeAcceleratorStreams(at::Device place);

}  // namespace penstock::worker
