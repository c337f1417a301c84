// Keeps jobs in one SQLite file, which one process has at a time.
//
// Durable: a commit is on the disk when it returns (write-ahead log, synchronous=FULL: one fsync each). With
// less (synchronous=NORMAL) a kill would lose nothing, but a power failure the last commits, which were
// answered.
//
// Beside PATH lie PATH-wal, the log, while it is open and after a kill; it belongs to the file.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/sync/sync.h"
#include "planner/service/store/event_store.h"
#include "planner/service/store/job_positions.h"
#include "planner/service/store/sqlite/sqlite_database.h"

namespace penstock {

class SqliteEventStore final : public EventStore {
 public:
  // Opens or creates the file, checks that it is whole, and brings it to this version. Reads all of it, so it
  // takes the time of that. Possible errors: those of EventStore; UNAVAILABLE when another process has the
  // file, FAILED_PRECONDITION when it is of a newer version or another program.
  static absl::StatusOr<std::unique_ptr<SqliteEventStore>> Open(const std::string& path);

  absl::Status Commit(absl::Span<const JobChange> changes) override;
  absl::StatusOr<std::vector<StoredJob>> Load() override;
  absl::StatusOr<uint64_t> LargestJob() override;
  absl::StatusOr<std::string> GetBatch(uint64_t job, uint64_t iteration) override;
  absl::Status Check() override;
  absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() override;
  void Stop() override { stopped_ = true; }

 private:
  class Copy;
  struct Statements {
    SqliteStatement select_position, insert_job, set_last_sequence, insert_event, put_batch, forget_batches,
        put_snapshot, delete_events, delete_job, delete_snapshot, delete_job_events, delete_batches,
        set_largest_job, select_largest_job, select_jobs, select_snapshots, select_events, select_batch,
        check;
  };

  explicit SqliteEventStore(std::unique_ptr<SqliteDatabase> database) : database_(std::move(database)) {}
  absl::Status PrepareStatements();

  // Not stopped, and the file is where it was.
  absl::Status ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<JobPositions> PositionsLocked(absl::Span<const JobChange> changes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteLocked(const JobChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AppendEventsLocked(const JobChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteBatchesLocked(const JobChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteSnapshotLocked(uint64_t job, const Snapshot& snapshot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RemoveLocked(uint64_t job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds what LoadedJobs needs.
  absl::Status LoadSnapshotsLocked(class LoadedJobs* loaded) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadEventsLocked(class LoadedJobs* loaded) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  const std::unique_ptr<SqliteDatabase> database_ ABSL_PT_GUARDED_BY(mutex_);
  Statements statements_ ABSL_GUARDED_BY(mutex_);
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> stopped_{false};
};

}  // namespace penstock
