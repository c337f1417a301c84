// The lease of a store that one process alone can open: always granted.
#pragma once

#include <string>

#include "common/sync/sync.h"
#include "planner/service/store/lease.h"

namespace penstock {

class SoleLease final : public Lease {
 public:
  absl::StatusOr<Term> Acquire(const std::string& holder) override {
    MutexLock lock(&mutex_);
    holder_ = holder;
    return ++term_;
  }
  absl::Status Renew() override {
    MutexLock lock(&mutex_);
    return holder_.empty() ? absl::AbortedError("the lease was not acquired") : absl::OkStatus();
  }
  absl::Status Release() override {
    MutexLock lock(&mutex_);
    holder_.clear();
    return absl::OkStatus();
  }
  absl::StatusOr<LeaseState> Read() override {
    MutexLock lock(&mutex_);
    return LeaseState{.term = term_,
                      .holder = holder_,
                      .remaining = holder_.empty() ? absl::ZeroDuration() : absl::InfiniteDuration()};
  }
  void Stop() override {}

 private:
  Mutex mutex_;
  Term term_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string holder_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
