#include "worker/torch/to_device.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/from_blob.h>

#include <memory>
#include <utility>

namespace penstock::worker {
namespace {

template <typename T>
at::Tensor Staged(at::Device device, at::ScalarType type, std::vector<T> values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = kept->data();
  const auto size = static_cast<int64_t>(kept->size());
  const at::Tensor host = at::from_blob(
      data, {size}, [owned = kept.release()](void*) { delete owned; }, type);
  return device.is_cuda() ? host.pin_memory() : host;
}

}  // namespace

at::Tensor StagedFor(at::Device device, std::vector<int64_t> values) {
  return Staged(device, at::kLong, std::move(values));
}

at::Tensor StagedFor(at::Device device, std::vector<int32_t> values) {
  return Staged(device, at::kInt, std::move(values));
}

at::Tensor Unstaged(const at::Tensor& staged, at::Device device) {
  return device.is_cpu() ? staged.clone() : ToDevice(staged, device);
}

// From memory that is not pinned, a copy to a GPU ends before the call returns, and not before the stream has
// come to it. LibTorch keeps the pinned block until the copy has been made.
at::Tensor ToDevice(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  const at::Tensor source = device.is_cuda() && !host.is_pinned() ? host.pin_memory() : host;
  return source.to(device, /*non_blocking=*/true);
}

}  // namespace penstock::worker
