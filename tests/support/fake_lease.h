// A lease without a server and without time: it is held until it is given up or taken.
//
//   SharedLease lease;
//   FakeLease of_this_planner(&lease);
//   lease.TakeOver("b:2");        // another leads now
//   lease.TakeOver("");           // nobody does
#pragma once

#include <string>

#include "common/sync/sync.h"
#include "planner/service/store/lease.h"
#include "tests/unit/service/event.h"

namespace penstock {

// What several planners see.
struct SharedLease {
  Mutex mutex;
  Term term ABSL_GUARDED_BY(mutex) = 0;
  std::string holder ABSL_GUARDED_BY(mutex);
  // Of every call but Acquire.
  absl::Status failure ABSL_GUARDED_BY(mutex);
  Event renewed;

  void TakeOver(const std::string& name) {
    MutexLock lock(&mutex);
    ++term;
    holder = name;
  }
  void Fail(const absl::Status& status) {
    MutexLock lock(&mutex);
    failure = status;
  }
  std::string Holder() {
    MutexLock lock(&mutex);
    return holder;
  }
};

class FakeLease final : public Lease {
 public:
  explicit FakeLease(SharedLease* shared) : shared_(shared) {}

  absl::StatusOr<Term> Acquire(const std::string& holder) override {
    MutexLock lock(&shared_->mutex);
    if (!shared_->holder.empty() && shared_->holder != holder) return absl::AlreadyExistsError("it is held");
    shared_->holder = holder;
    return own_ = ++shared_->term;
  }
  absl::Status Renew() override {
    shared_->renewed.Notify();
    MutexLock lock(&shared_->mutex);
    if (!shared_->failure.ok()) return shared_->failure;
    return shared_->term == own_ ? absl::OkStatus() : absl::AbortedError("another planner leads now");
  }
  absl::Status Release() override {
    MutexLock lock(&shared_->mutex);
    if (shared_->term == own_) shared_->holder.clear();
    return absl::OkStatus();
  }
  absl::StatusOr<LeaseState> Read() override {
    MutexLock lock(&shared_->mutex);
    if (!shared_->failure.ok()) return shared_->failure;
    return LeaseState{.term = shared_->term, .holder = shared_->holder, .remaining = absl::Minutes(10)};
  }
  void Stop() override {}

 private:
  SharedLease* const shared_;
  Term own_ = 0;
};

}  // namespace penstock
