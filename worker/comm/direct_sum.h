// All-reduce of a small tensor: every rank sends it to every other one at once and sums all of them by
// itself. One hop, where a ring has 2 (n - 1); each rank sends n - 1 times the data, where a ring sends less
// than twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

// What all ranks but one send to one of them: below it, starting a message takes longer than moving it.
inline constexpr int64_t kDirectBytes = int64_t{64} << 10;

// `size` ranks, of which this is the one at `position`. Messages between two ranks arrive in order.
struct Mesh {
  using Start = std::function<absl::StatusOr<std::unique_ptr<PendingTransfer>>(int peer, const at::Tensor&)>;

  int position = 0;
  int size = 1;
  Start send;
  Start receive;
};

inline bool SumsDirectly(const at::Tensor& tensor, size_t ranks) {
  return static_cast<int64_t>(tensor.nbytes() * (ranks - 1)) <= kDirectBytes;
}

// Sums in place over the ranks: the same bits on all of them, and those of RingAllReduceSum. `tensor` is flat
// and contiguous. Possible errors: those of the links, RESOURCE_EXHAUSTED (memory).
absl::Status DirectAllReduceSum(const at::Tensor& tensor, const Mesh& mesh);

}  // namespace penstock::worker
