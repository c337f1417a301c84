// A clock that only moves when a test says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "common/sync/sync.h"
#include "planner/service/engine/clock.h"

namespace penstock {

class FakeClock final : public SteadyClock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(nanoseconds_.load()); }
  absl::Time TimeOfDay() const override {
    return absl::FromUnixSeconds(kStart) + (Now() - absl::UnixEpoch());
  }
  absl::Duration ComputedBy(ThreadClock thread) const override {
    MutexLock lock(&mutex_);
    const auto found = computed_.find(thread);
    return found == computed_.end() ? absl::ZeroDuration() : found->second;
  }
  // Nobody computes meanwhile.
  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }
  // The thread that calls computes meanwhile, and nobody else.
  void Compute(absl::Duration by) {
    {
      MutexLock lock(&mutex_);
      computed_[ClockOfThisThread()] += by;
    }
    Advance(by);
  }

 private:
  static constexpr int64_t kStart = 1'800'000'000;

  std::atomic<int64_t> nanoseconds_{1'000'000'000};
  mutable Mutex mutex_;
  std::map<ThreadClock, absl::Duration> computed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
