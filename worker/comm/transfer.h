// A started c10d operation as a PendingTransfer.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/cancellation.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

// `start` begins the operation; `description`, such as "receiving from rank 3", begins the message of every
// error. Possible errors: UNAVAILABLE, CANCELLED.
absl::StatusOr<std::unique_ptr<PendingTransfer>> StartTransfer(
    const std::string& description, const at::Tensor& tensor,
    const std::shared_ptr<Cancellation>& cancellation, std::chrono::milliseconds timeout,
    const std::function<Cancellation::Work()>& start);

}  // namespace penstock::worker
