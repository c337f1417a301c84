// Durations, of which quantiles are asked. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/sync/sync.h"

namespace penstock::bench {

class Latencies {
 public:
  void Add(absl::Duration time) {
    MutexLock lock(&mutex_);
    values_.push_back(time);
  }
  void AddAll(const Latencies& other) {
    const std::vector<absl::Duration> values = other.values();
    MutexLock lock(&mutex_);
    values_.insert(values_.end(), values.begin(), values.end());
  }
  size_t count() const {
    MutexLock lock(&mutex_);
    return values_.size();
  }
  // 0: the shortest, 0.5: the median, 1: the longest; nothing measured: 0.
  absl::Duration Quantile(double share) const {
    MutexLock lock(&mutex_);
    if (values_.empty()) return absl::ZeroDuration();
    const auto at =
        values_.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values_.size() - 1));
    std::ranges::nth_element(values_, at);
    return *at;
  }

 private:
  std::vector<absl::Duration> values() const {
    MutexLock lock(&mutex_);
    return values_;
  }

  mutable Mutex mutex_;
  mutable std::vector<absl::Duration> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::bench
