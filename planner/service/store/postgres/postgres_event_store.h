// Keeps jobs in a PostgreSQL database, which several planners share: one writes, whose term is that of the
// lease (postgres_lease.h).
//
// Durable: a commit is on the server's disk when it returns. A lost connection is made again; what is not
// known is found out: each commit leaves a mark of its own, which is looked for when the answer to the commit
// was lost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "planner/service/store/event_store.h"
#include "planner/service/store/job_positions.h"
#include "planner/service/store/lease.h"
#include "planner/service/store/postgres/postgres_connection.h"
#include "planner/service/store/uncertain_commit.h"

namespace penstock {

struct PostgresStoreOptions {
  // Commits end with ABORTED when another term has begun. 0: before the first lease.
  Term term = 0;
  // How long a call may take, with all attempts to connect again.
  absl::Duration call_timeout = absl::Seconds(5);
  // The same for Load() and for opening.
  absl::Duration load_timeout = absl::Seconds(60);
};

class PostgresEventStore final : public EventStore {
 public:
  // `url`: postgres://user@host:port/database, as libpq takes it. Makes the tables where there are none.
  // Possible errors: those of EventStore.
  static absl::StatusOr<std::unique_ptr<PostgresEventStore>> Open(const std::string& url,
                                                                  const PostgresStoreOptions& options);

  absl::Status Commit(absl::Span<const JobChange> changes) override;
  absl::StatusOr<std::vector<StoredJob>> Load() override;
  absl::StatusOr<uint64_t> LargestJob() override;
  absl::StatusOr<std::string> GetBatch(uint64_t job, uint64_t iteration) override;
  absl::Status Check() override;
  absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() override {
    return absl::UnimplementedError(
        "the store is a PostgreSQL database: back it up with its own tools (pg_dump, or a base backup)");
  }
  void Stop() override;

 private:
  // A commit that was sent and not answered.
  struct Pending {
    // What it writes into penstock_store.
    std::string mark;
    UncertainCommit changes;
  };
  // What the server says at the start of a transaction.
  struct Start {
    std::string last_mark;
    JobPositions positions;
  };

  PostgresEventStore(const std::string& url, const PostgresStoreOptions& options);

  absl::Status TryCommitLocked(absl::Span<const JobChange> changes, Deadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<Start> BeginLocked(absl::Span<const JobChange> changes, Deadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // What is left to do of `changes`, when it is known what became of the last commit.
  absl::StatusOr<absl::Span<const JobChange>> SettlePendingLocked(absl::Span<const JobChange> changes,
                                                                  const std::string& last_mark)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status WriteLocked(absl::Span<const JobChange> changes, const std::string& mark, Deadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<std::vector<PostgresResult>> Read(absl::Span<const PostgresStatement> statements,
                                                   absl::Duration timeout);

  const PostgresStoreOptions options_;
  Mutex write_mutex_;
  // Stop() is called without the lock.
  PostgresConnection writer_;
  // Those of which one may be the last that took effect: two at most.
  std::vector<Pending> pending_ ABSL_GUARDED_BY(write_mutex_);
  // Reads do not wait for a commit that waits for the server.
  Mutex read_mutex_;
  PostgresConnection reader_;
};

}  // namespace penstock
