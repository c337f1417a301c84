// A store that fails when a test says so, around one that does not.
//
//   MemoryEventStore memory;
//   FaultyStore store(&memory);
//   store.FailCommit(2, FaultyStore::Effect::kDone);   // the second commit from now takes effect, and says
//   UNAVAILABLE store.Break(absl::ResourceExhaustedError("disk full"));   // until Mend()
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "planner/service/store/event_store.h"
#include "planner/service/store/uncertain_commit.h"

namespace penstock {

// Thread-safe. `store` must outlive it.
class FaultyStore final : public EventStore {
 public:
  // What is left of a commit that fails.
  enum class Effect { kNone, kDone };

  explicit FaultyStore(EventStore* store) : store_(store) {}

  // The n-th call of Commit from now (1: the next) ends with `error`.
  void FailCommit(int n, Effect effect, absl::Status error = absl::UnavailableError("FaultyStore: commit")) {
    MutexLock lock(&mutex_);
    fault_ = Fault{.in = n, .effect = effect, .error = std::move(error)};
  }

  // Every call fails from now on.
  void Break(absl::Status error) {
    MutexLock lock(&mutex_);
    broken_ = std::move(error);
  }
  void Mend() { Break(absl::OkStatus()); }

  // Called at the start of each Commit, by its thread; may block, as a slow disk does.
  void SetGate(std::function<void()> gate) {
    MutexLock lock(&mutex_);
    gate_ = std::move(gate);
  }

  // Calls of Commit that returned OK.
  int commits() const {
    MutexLock lock(&mutex_);
    return commits_;
  }

  absl::Status Commit(absl::Span<const JobChange> changes) override {
    if (const std::function<void()> gate = Gate()) gate();
    MutexLock lock(&mutex_);
    PENSTOCK_RETURN_IF_ERROR(broken_);
    const bool fails = fault_.has_value() && --fault_->in == 0;
    const Fault fault = fails ? *std::exchange(fault_, std::nullopt) : Fault{};
    if (fails && fault.effect == Effect::kNone) return fault.error;
    PENSTOCK_RETURN_IF_ERROR(CommitRestLocked(changes));
    if (fails) {
      uncertain_.emplace(changes);
      return fault.error;
    }
    ++commits_;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StoredJob>> Load() override {
    PENSTOCK_RETURN_IF_ERROR(Broken());
    return store_->Load();
  }
  absl::StatusOr<uint64_t> LargestJob() override {
    PENSTOCK_RETURN_IF_ERROR(Broken());
    return store_->LargestJob();
  }
  absl::StatusOr<std::string> GetBatch(uint64_t job, uint64_t iteration) override {
    PENSTOCK_RETURN_IF_ERROR(Broken());
    return store_->GetBatch(job, iteration);
  }
  absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() override { return store_->BeginCopy(); }
  absl::Status Check() override {
    PENSTOCK_RETURN_IF_ERROR(Broken());
    return store_->Check();
  }
  void Stop() override { store_->Stop(); }

 private:
  struct Fault {
    int in = 0;
    Effect effect = Effect::kNone;
    absl::Status error;
  };

  std::function<void()> Gate() const {
    MutexLock lock(&mutex_);
    return gate_;
  }
  absl::Status Broken() const {
    MutexLock lock(&mutex_);
    return broken_;
  }

  // Does not do again what took effect when the last commit failed.
  absl::Status CommitRestLocked(absl::Span<const JobChange> changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (uncertain_.has_value()) {
      PENSTOCK_ASSIGN_OR_RETURN(changes, uncertain_->Rest(changes));
    }
    PENSTOCK_RETURN_IF_ERROR(store_->Commit(changes));
    uncertain_.reset();
    return absl::OkStatus();
  }

  EventStore* const store_;
  mutable Mutex mutex_;
  std::optional<Fault> fault_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> gate_ ABSL_GUARDED_BY(mutex_);
  std::optional<UncertainCommit> uncertain_ ABSL_GUARDED_BY(mutex_);
  int commits_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
