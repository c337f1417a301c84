// The bytes of a tensor in a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/safetensors/reader.h"

namespace penstock::worker {

// Fills `destination`, on any device, from the stored tensor's data, from byte `offset` on. It has the type
// that is stored, and no more elements than are behind there. Possible errors: UNAVAILABLE (names the path),
// RESOURCE_EXHAUSTED (memory).
absl::Status ReadTensor(const SafetensorsReader& file, const StoredTensor& stored, uint64_t offset,
                        const at::Tensor& destination);

}  // namespace penstock::worker
