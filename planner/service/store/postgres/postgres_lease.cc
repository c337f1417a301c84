#include "planner/service/store/postgres/postgres_lease.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/service/store/postgres/postgres_schema.h"

namespace penstock {
namespace {

// clock_timestamp() is the time when the row is there to be changed; now() would be that of the start, before
// a wait. A new term changes a key, so this waits for commits of the old one (postgres_schema.cc).
constexpr char kAcquire[] =
    "UPDATE penstock_lease SET term = term + 1, holder = $1, "
    "expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond' "
    "WHERE holder = $1 OR expires_at <= clock_timestamp() RETURNING term";
constexpr char kRenew[] =
    "UPDATE penstock_lease SET expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond' WHERE "
    "term = $1";
// Another term begins, whose holder is nobody: from here on nothing of this one is committed.
constexpr char kRelease[] =
    "UPDATE penstock_lease SET term = term + 1, holder = '', expires_at = clock_timestamp() WHERE term = $1";
constexpr char kRead[] =
    "SELECT term, holder, (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint FROM "
    "penstock_lease";

}  // namespace

absl::StatusOr<std::unique_ptr<PostgresLease>> PostgresLease::Open(const std::string& url,
                                                                   const PostgresLeaseOptions& options) {
  auto lease = std::unique_ptr<PostgresLease>(new PostgresLease(url, options));
  PENSTOCK_RETURN_IF_ERROR(
      MigratePostgres(&lease->connection_, PostgresMigrations(), Deadline::After(options.call_timeout)));
  return lease;
}

absl::StatusOr<LeaseState> PostgresLease::ReadLocked(Deadline deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(auto results, connection_.RunRepeatable({{.sql = kRead}}, deadline));
  if (results[0].rows() == 0) return LeaseState{};
  const auto microseconds = static_cast<int64_t>(results[0].Number(0, 2));
  return LeaseState{.term = results[0].Number(0, 0),
                    .holder = results[0].Bytes(0, 1),
                    .remaining = absl::Microseconds(microseconds)};
}

absl::StatusOr<Term> PostgresLease::Acquire(const std::string& holder) {
  if (holder.empty()) return absl::InvalidArgumentError("the holder of a lease needs a name");
  MutexLock lock(&mutex_);
  const Deadline deadline = Deadline::After(options_.call_timeout);
  const auto time = static_cast<uint64_t>(absl::ToInt64Microseconds(options_.time_to_live));
  // Repeated when the answer is lost: that the first one took effect only makes a term more.
  PENSTOCK_ASSIGN_OR_RETURN(
      auto results, connection_.RunRepeatable({{.sql = kAcquire, .parameters = {holder, time}}}, deadline));
  if (results[0].rows() == 1) {
    term_ = results[0].Number(0, 0);
    return term_;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const LeaseState state, ReadLocked(deadline));
  return absl::AlreadyExistsError(
      absl::StrCat("'", state.holder, "' leads (term ", state.term, "), for another ",
                   absl::FormatDuration(absl::Trunc(state.remaining, absl::Milliseconds(1))),
                   " unless it renews its lease"));
}

absl::StatusOr<uint64_t> PostgresLease::UpdateLocked(const PostgresStatement& statement) {
  PENSTOCK_ASSIGN_OR_RETURN(auto results,
                            connection_.RunRepeatable({statement}, Deadline::After(options_.call_timeout)));
  return results[0].changed();
}

absl::Status PostgresLease::Renew() {
  MutexLock lock(&mutex_);
  const auto time = static_cast<uint64_t>(absl::ToInt64Microseconds(options_.time_to_live));
  PENSTOCK_ASSIGN_OR_RETURN(
      const uint64_t renewed,
      term_ == 0 ? uint64_t{0} : UpdateLocked({.sql = kRenew, .parameters = {term_, time}}));
  if (renewed == 1) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("store '", connection_.server(), "': term ", term_,
                                         " of this planner is over: another planner leads now"));
}

absl::Status PostgresLease::Release() {
  MutexLock lock(&mutex_);
  if (term_ == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(UpdateLocked({.sql = kRelease, .parameters = {term_}}).status());
  term_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<LeaseState> PostgresLease::Read() {
  MutexLock lock(&mutex_);
  return ReadLocked(Deadline::After(options_.call_timeout));
}

}  // namespace penstock
