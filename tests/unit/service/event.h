// Something that happens on another thread, waited for with a time-out.
#pragma once

#include "common/sync/sync.h"

namespace penstock {

class Event {
 public:
  void Notify() {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.SignalAll();
  }

  // Takes one notification. False after 20 s.
  bool Await() {
    MutexLock lock(&mutex_);
    while (count_ == 0) {
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20)) && count_ == 0) return false;
    }
    --count_;
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
