// Ends what a worker has under way in one epoch when the epoch has failed, so that the worker can join the
// next one.
//
//   EpochStop stop(shutdown, absl::Seconds(30));
//   agent->SetFailureListener([&](const absl::Status& why) { stop.Request(why); });
//   ... make a communicator ...
//   stop.SetAbort([&](const absl::Status& why) { communicator->Abort(std::string(why.message())); });
//
// From a failure on the epoch has a time to be over, which it is when this object is destroyed: a worker that
// is stuck in a computation ends as a process, for who supervises it to start again.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "worker/runtime/shutdown.h"

namespace penstock::worker {

// Thread-safe.
class EpochStop {
 public:
  using Abort = std::function<void(const absl::Status& why)>;

  // `shutdown` must outlive this object.
  EpochStop(Shutdown& shutdown, absl::Duration grace) : shutdown_(shutdown), grace_(grace) {}
  ~EpochStop() { shutdown_.ClearLimit(); }
  EpochStop(const EpochStop&) = delete;
  EpochStop& operator=(const EpochStop&) = delete;

  // The epoch has failed. The first reason counts. Does not block.
  void Request(const absl::Status& why);

  // Called once, with the lock not held: by Request, or at once when the epoch has failed already.
  void SetAbort(Abort abort);

  // Why the epoch has failed; OK: it has not.
  absl::Status reason() const;

 private:
  Shutdown& shutdown_;
  const absl::Duration grace_;
  mutable Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  Abort abort_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::worker
