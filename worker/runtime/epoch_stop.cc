#include "worker/runtime/epoch_stop.h"

#include <utility>

namespace penstock::worker {

void EpochStop::Request(const absl::Status& why) {
  Abort abort;
  {
    MutexLock lock(&mutex_);
    if (!reason_.ok()) return;
    reason_ = why;
    abort.swap(abort_);
  }
  shutdown_.SetLimit(grace_, why);
  if (abort) abort(why);
}

void EpochStop::SetAbort(Abort abort) {
  absl::Status reason;
  {
    MutexLock lock(&mutex_);
    reason = reason_;
    if (reason.ok()) abort_.swap(abort);
  }
  if (!reason.ok()) abort(reason);
}

absl::Status EpochStop::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

}  // namespace penstock::worker
