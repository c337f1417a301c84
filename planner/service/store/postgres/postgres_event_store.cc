#include "planner/service/store/postgres/postgres_event_store.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/store/loaded_jobs.h"
#include "planner/service/store/postgres/change_statements.h"
#include "planner/service/store/postgres/postgres_schema.h"
#include "planner/service/store/record_checksum.h"

namespace penstock {
namespace {

// 16 bytes that no other commit has.
std::string NewMark() {
  static thread_local std::random_device random;
  std::string mark;
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = random();
    mark.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  return mark;
}

absl::Status Damaged(const std::string& server, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kDataLoss) return status;
  return absl::DataLossError(absl::StrCat("store '", server, "': ", status.message(),
                                          "; restore the database from a copy, or use an empty one"));
}

absl::StatusOr<std::vector<StoredJob>> LoadedFrom(const PostgresResult& jobs, const PostgresResult& snapshots,
                                                  const PostgresResult& events) {
  LoadedJobs loaded;
  for (int row = 0; row < jobs.rows(); ++row) {
    loaded.AddJob(jobs.Number(row, 0), jobs.Bytes(row, 1), jobs.Number(row, 2));
  }
  for (int row = 0; row < snapshots.rows(); ++row) {
    PENSTOCK_RETURN_IF_ERROR(loaded.AddSnapshot(snapshots.Number(row, 0), snapshots.Number(row, 1),
                                                snapshots.Number(row, 2), snapshots.Bytes(row, 3)));
  }
  for (int row = 0; row < events.rows(); ++row) {
    PENSTOCK_RETURN_IF_ERROR(loaded.AddEvent(events.Number(row, 0), events.Number(row, 1),
                                             events.Number(row, 2), events.Bytes(row, 3)));
  }
  return std::move(loaded).Finish();
}

}  // namespace

PostgresEventStore::PostgresEventStore(const std::string& url, const PostgresStoreOptions& options)
    : options_(options), writer_(url, options.call_timeout), reader_(url, options.load_timeout) {}

absl::StatusOr<std::unique_ptr<PostgresEventStore>> PostgresEventStore::Open(
    const std::string& url, const PostgresStoreOptions& options) {
  auto store = std::unique_ptr<PostgresEventStore>(new PostgresEventStore(url, options));
  PENSTOCK_RETURN_IF_ERROR(
      MigratePostgres(&store->reader_, PostgresMigrations(), Deadline::After(options.call_timeout)));
  return store;
}

void PostgresEventStore::Stop() {
  writer_.Stop();
  reader_.Stop();
}

absl::StatusOr<PostgresEventStore::Start> PostgresEventStore::BeginLocked(absl::Span<const JobChange> changes,
                                                                          Deadline deadline) {
  // One writer at a time: rows are locked in this order. The statement after them sees what the writer before
  // committed.
  const std::string keys = absl::StrCat("{", absl::StrJoin(JobsOf(changes), ","), "}");
  PENSTOCK_ASSIGN_OR_RETURN(
      auto results,
      writer_.Run(
          {{.sql = "BEGIN"},
           {.sql = "SELECT term FROM penstock_lease FOR KEY SHARE"},
           {.sql = "SELECT last_commit FROM penstock_store FOR UPDATE"},
           {.sql = "SELECT j.job, j.last_sequence, coalesce(s.sequence, 0) FROM penstock_jobs j "
                   "LEFT JOIN penstock_snapshots s USING (job) WHERE j.job = ANY(($1::text)::bigint[])",
            .parameters = {keys}}},
          deadline));
  const Term term = results[1].rows() == 0 ? 0 : results[1].Number(0, 0);
  if (term != options_.term) {
    return absl::AbortedError(absl::StrCat("store '", writer_.server(), "': term ", term,
                                           " has begun, and this planner led in term ", options_.term,
                                           ": another planner leads now"));
  }
  Start start;
  if (results[2].rows() > 0) start.last_mark = results[2].Bytes(0, 0);
  for (int row = 0; row < results[3].rows(); ++row) {
    start.positions.Set(results[3].Number(row, 0), {.last_sequence = results[3].Number(row, 1),
                                                    .snapshot_sequence = results[3].Number(row, 2)});
  }
  return start;
}

absl::StatusOr<absl::Span<const JobChange>> PostgresEventStore::SettlePendingLocked(
    absl::Span<const JobChange> changes, const std::string& last_mark) {
  std::erase_if(pending_, [&](const Pending& pending) { return pending.mark != last_mark; });
  if (pending_.empty()) return changes;
  // It stays until its changes were committed again with an answer: the caller does not know yet.
  return pending_.front().changes.Rest(changes);
}

absl::Status PostgresEventStore::WriteLocked(absl::Span<const JobChange> changes, const std::string& mark,
                                             Deadline deadline) {
  std::vector<PostgresStatement> statements = StatementsOf(changes);
  statements.push_back(
      {.sql = "UPDATE penstock_store SET largest_job = greatest(largest_job, $1), last_commit = $2",
       .parameters = {LargestJobOf(changes), mark}});
  statements.push_back({.sql = "COMMIT"});
  return writer_.Run(statements, deadline).status();
}

absl::Status PostgresEventStore::TryCommitLocked(absl::Span<const JobChange> changes, Deadline deadline) {
  PENSTOCK_RETURN_IF_ERROR(writer_.Connect(deadline));
  PENSTOCK_ASSIGN_OR_RETURN(Start start, BeginLocked(changes, deadline));
  PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const JobChange> rest,
                            SettlePendingLocked(changes, start.last_mark));
  if (rest.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(start.positions.Advance(rest));
  const std::string mark = NewMark();
  const absl::Status status = WriteLocked(rest, mark, deadline);
  // While it is connected the server has answered: it is done, or was rolled back.
  if (!status.ok() && !writer_.connected()) {
    pending_.push_back({.mark = mark, .changes = UncertainCommit(changes)});
  }
  return status;
}

absl::Status PostgresEventStore::Commit(absl::Span<const JobChange> changes) {
  PENSTOCK_RETURN_IF_ERROR(CheckRanges(changes));
  MutexLock lock(&write_mutex_);
  const Deadline deadline = Deadline::After(options_.call_timeout);
  while (true) {
    const absl::Status status = TryCommitLocked(changes, deadline);
    writer_.RollBack();
    if (status.ok()) pending_.clear();
    const bool lost = status.code() == absl::StatusCode::kUnavailable && !writer_.connected();
    if (!lost || !writer_.BackOff(deadline).ok()) return status;
  }
}

absl::StatusOr<std::vector<PostgresResult>> PostgresEventStore::Read(
    absl::Span<const PostgresStatement> statements, absl::Duration timeout) {
  MutexLock lock(&read_mutex_);
  return reader_.RunRepeatable(statements, Deadline::After(timeout));
}

absl::StatusOr<std::vector<StoredJob>> PostgresEventStore::Load() {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto results,
      Read({{.sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
            {.sql = "SELECT job, job_id, last_sequence FROM penstock_jobs"},
            {.sql = "SELECT job, sequence, checksum, bytes FROM penstock_snapshots"},
            {.sql = "SELECT job, sequence, checksum, bytes FROM penstock_events ORDER BY job, sequence"},
            {.sql = "COMMIT"}},
           options_.load_timeout));
  auto jobs = LoadedFrom(results[1], results[2], results[3]);
  if (!jobs.ok()) return Damaged(reader_.server(), jobs.status());
  return jobs;
}

absl::StatusOr<uint64_t> PostgresEventStore::LargestJob() {
  PENSTOCK_ASSIGN_OR_RETURN(auto results,
                            Read({{.sql = "SELECT largest_job FROM penstock_store"}}, options_.call_timeout));
  return results[0].rows() == 0 ? 0 : results[0].Number(0, 0);
}

absl::StatusOr<std::string> PostgresEventStore::GetBatch(uint64_t job, uint64_t iteration) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto results,
      Read({{.sql = "SELECT checksum, bytes FROM penstock_batches WHERE job = $1 AND iteration = $2",
             .parameters = {job, iteration}}},
           options_.call_timeout));
  if (results[0].rows() == 0) return BatchNotFound(job, iteration);
  std::string batch = results[0].Bytes(0, 1);
  PENSTOCK_RETURN_IF_ERROR(
      Damaged(reader_.server(), CheckRecord(BatchKey(job, iteration), batch, results[0].Number(0, 0))));
  return batch;
}

absl::Status PostgresEventStore::Check() {
  return Read({{.sql = "UPDATE penstock_checks SET checks = checks + 1"}}, options_.call_timeout).status();
}

}  // namespace penstock
