// All-reduce by a ring: reduce-scatter, then all-gather (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009).
//
// Each rank moves 2 (n - 1) / n of the data each way. The order in which a chunk is summed depends on its
// place alone, and every rank receives the finished sum, so that all have the same bits in every run. Gloo
// has a ring too, but one that c10d can neither abort nor blame on a peer.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

// The neighbours in the ring: sends go to the next rank, receives come from the previous one.
struct RingLinks {
  using Start = std::function<absl::StatusOr<std::unique_ptr<PendingTransfer>>(const at::Tensor& tensor)>;
  Start send;
  Start receive;
};

// Sums the flat, contiguous `tensor` in place over `size` ranks, of which this is the one at `position`.
// Possible errors: those of the links.
absl::Status RingAllReduceSum(const at::Tensor& tensor, int position, int size, const RingLinks& links);

}  // namespace penstock::worker
