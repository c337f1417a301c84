// Callbacks that are told that something may have changed. Thread-safe; callbacks run without a lock held, so
// one may still run shortly after its Remove().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/sync/sync.h"

namespace penstock {

class WakeList {
 public:
  using Wake = std::function<void()>;

  uint64_t Add(Wake wake) {
    MutexLock lock(&mutex_);
    wakes_[next_id_] = std::move(wake);
    return next_id_++;
  }

  void Remove(uint64_t id) {
    MutexLock lock(&mutex_);
    wakes_.erase(id);
  }

  bool empty() const {
    MutexLock lock(&mutex_);
    return wakes_.empty();
  }

  void WakeAll() {
    std::vector<Wake> wakes;
    {
      MutexLock lock(&mutex_);
      for (const auto& [id, wake] : wakes_) wakes.push_back(wake);
    }
    for (const Wake& wake : wakes) wake();
  }

 private:
  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Wake> wakes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
