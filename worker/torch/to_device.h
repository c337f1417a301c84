// Host values as tensors of a device, without the host waiting for the copy: to a GPU they go from pinned
// memory, on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace penstock::worker {

// The values in memory of the host from which they can be copied to the device, of one dimension. Not counted
// as memory of tensors (tensor_memory.h): they are those of the vector. Any thread; throws what LibTorch
// throws.
at::Tensor StagedFor(at::Device device, std::vector<int64_t> values);
at::Tensor StagedFor(at::Device device, std::vector<int32_t> values);
// The same in memory of the device, which is another one on the CPU too. As ToDevice otherwise.
at::Tensor Unstaged(const at::Tensor& staged, at::Device device);

// `host`: a tensor of the CPU that nobody changes any more. The copy is there for what runs on the current
// stream after it. Throws what LibTorch throws.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

}  // namespace penstock::worker
