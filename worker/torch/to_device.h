// Host values as tensors of a device, without the host waiting for the copy: to a GPU they go from pinned
// memory, on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock::worker {

// `host`: a tensor of the CPU that nobody changes any more. The copy is there for what runs on the current
// stream after it. Throws what LibTorch throws.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

}  // namespace penstock::worker
