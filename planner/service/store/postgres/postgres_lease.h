// The lease of a PostgreSQL store (lease.h): a row of penstock_lease, by the server's clock.
#pragma once

#include <memory>
#include <string>

#include "common/sync/sync.h"
#include "planner/service/store/lease.h"
#include "planner/service/store/postgres/postgres_connection.h"

namespace penstock {

struct PostgresLeaseOptions {
  // How long it is held without being renewed. Renew it three times as often.
  absl::Duration time_to_live = absl::Seconds(6);
  // How long a call may take, with all attempts to connect again.
  absl::Duration call_timeout = absl::Seconds(3);
};

class PostgresLease final : public Lease {
 public:
  // Makes the tables where there are none. Possible errors: those of EventStore.
  static absl::StatusOr<std::unique_ptr<PostgresLease>> Open(const std::string& url,
                                                             const PostgresLeaseOptions& options);

  absl::StatusOr<Term> Acquire(const std::string& holder) override;
  absl::Status Renew() override;
  absl::Status Release() override;
  absl::StatusOr<LeaseState> Read() override;
  void Stop() override { connection_.Stop(); }

 private:
  PostgresLease(const std::string& url, const PostgresLeaseOptions& options)
      : options_(options), connection_(url, options.call_timeout) {}

  absl::StatusOr<LeaseState> ReadLocked(Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The number of rows that an UPDATE changed.
  absl::StatusOr<uint64_t> UpdateLocked(const PostgresStatement& statement)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PostgresLeaseOptions options_;
  Mutex mutex_;
  // Stop() is called without the lock.
  PostgresConnection connection_;
  // What was acquired last; 0: nothing.
  Term term_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
