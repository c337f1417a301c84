// Keeps jobs in memory: a planner that ends forgets them. What a planner without a durable store has, and
// what tests use.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/sync/sync.h"
#include "planner/service/store/event_store.h"
#include "planner/service/store/job_positions.h"

namespace penstock {

class MemoryEventStore final : public EventStore {
 public:
  absl::Status Commit(absl::Span<const JobChange> changes) override;
  absl::StatusOr<std::vector<StoredJob>> Load() override;
  absl::StatusOr<uint64_t> LargestJob() override;
  absl::StatusOr<std::string> GetBatch(uint64_t job, uint64_t iteration) override;
  absl::Status Check() override;
  absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() override {
    return absl::UnimplementedError(
        "this planner keeps its jobs in memory alone (--store=memory): there is nothing to back up");
  }
  void Stop() override;

 private:
  struct Entry {
    StoredJob job;
    std::map<uint64_t, std::string> batches;
  };

  absl::Status StoppedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobPositions PositionsLocked(absl::Span<const JobChange> changes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyLocked(const JobChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::map<uint64_t, Entry> jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t largest_job_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace penstock
