// Remembers that a communicator was aborted, and wakes those who wait for a transfer.
//
// c10d::Work::abort() on a pending Gloo transfer makes wait() return as if the data were there, so whoever
// waits must ask status() afterwards, before the buffer is used.
#pragma once

#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/status/status.h"
#include "common/sync/sync.h"

namespace penstock::worker {

// Thread-safe.
class Cancellation {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  // OK, or CANCELLED with the reason.
  absl::Status status() const;

  // Works in between are aborted with the communicator; one that is added later is aborted at once.
  void Add(const Work& work);
  void Remove(const Work& work);

  // From now on status() is CANCELLED. True the first time; then AbortPending is due.
  bool Begin(const std::string& reason);
  // Aborts the works in between, which may block.
  void AbortPending();

 private:
  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  std::set<Work> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::worker
