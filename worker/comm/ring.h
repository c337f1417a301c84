// All-reduce by a ring: reduce-scatter, then all-gather (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009), and both halves by themselves.
//
// Each rank moves (n - 1) / n of the data each way, in each half. The order in which a shard is summed
// depends on its place alone, and every rank receives the finished sum, so that all have the same bits in
// every run. Shards travel in segments: while one is summed the next ones arrive, and what a rank needs
// beside the tensor is two segments. Gloo has a ring too, but one that c10d can neither abort nor blame on a
// peer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

inline constexpr int64_t kRingSegmentBytes = int64_t{1} << 20;

// `size` ranks, of which this is the one at `position`. Sends go to the next rank, receives come from the
// previous one; parts arrive in the order in which they were sent.
struct Ring {
  using Start = std::function<absl::StatusOr<std::unique_ptr<PendingTransfer>>(const at::Tensor& part)>;

  int position = 0;
  int size = 1;
  Start send;
  Start receive;
  int64_t segment_bytes = kRingSegmentBytes;
};

// `tensor` is flat and contiguous, and divided as ShardOf says, by positions.
// Possible errors: those of the links.
//
// Sums in place over the ranks.
absl::Status RingAllReduceSum(const at::Tensor& tensor, const Ring& ring);
// Sums this rank's shard; the other shards are undefined then.
absl::Status RingReduceScatterSum(const at::Tensor& tensor, const Ring& ring);
// Gives every rank all ranks' shards.
absl::Status RingAllGather(const at::Tensor& tensor, const Ring& ring);

}  // namespace penstock::worker
