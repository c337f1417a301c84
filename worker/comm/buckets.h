// Groups tensors into flat buckets, so that a reduction of many small tensors is a few large messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace penstock::worker {

// Calls `reduce` for one flat tensor after another until each of `tensors` was part of one; what `reduce`
// writes into the flat tensors is then in `tensors`. Neighbours of one type share a bucket of up to
// `bucket_bytes`; a larger tensor travels alone and, where it is contiguous, without a copy. Stops at the
// first error.
absl::Status ReduceInBuckets(std::vector<at::Tensor>& tensors, int64_t bucket_bytes,
                             const std::function<absl::Status(at::Tensor flat)>& reduce);

}  // namespace penstock::worker
