#include "worker/checkpoint/tensor_bytes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {

absl::Status ReadTensor(const SafetensorsReader& file, const StoredTensor& stored, uint64_t offset,
                        const at::Tensor& destination) {
  if (destination.is_cpu() && destination.is_contiguous()) {
    auto* const data = static_cast<char*>(destination.mutable_data_ptr());
    return file.Read(stored, offset, absl::MakeSpan(data, destination.nbytes()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor read, CallTorch("reading a tensor", [&] {
                              return at::empty(destination.sizes(),
                                               at::TensorOptions(destination.scalar_type()));
                            }));
  PENSTOCK_RETURN_IF_ERROR(ReadTensor(file, stored, offset, read));
  return RunTorch("reading a tensor", [&] {
    const at::NoGradGuard no_gradients;
    destination.copy_(read);
  });
}

}  // namespace penstock::worker
