#include "worker/torch/to_device.h"

namespace penstock::worker {

// From memory that is not pinned, a copy to a GPU ends before the call returns, and not before the stream has
// come to it. LibTorch keeps the pinned block until the copy has been made.
at::Tensor ToDevice(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  const at::Tensor source = device.is_cuda() ? host.pin_memory() : host;
  return source.to(device, /*non_blocking=*/true);
}

}  // namespace penstock::worker
