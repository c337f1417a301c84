// An operation that a thread runs beside the caller, as a PendingTransfer.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/sync/task_thread.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

// `operation` must end by itself (its waits have deadlines); `thread` must live until it has. What it uses it
// holds itself: who started it may be gone.
std::unique_ptr<PendingTransfer> StartOn(TaskThread& thread, std::function<absl::Status()> operation);

}  // namespace penstock::worker
