#include "planner/service/store/sqlite/sqlite_event_store.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/store/loaded_jobs.h"
#include "planner/service/store/record_checksum.h"
#include "planner/service/store/sqlite/sqlite_copy.h"
#include "planner/service/store/sqlite/sqlite_schema.h"

namespace penstock {
namespace {

// The log is made shorter again after a commit of large batches made it longer.
constexpr char kJournal[] = "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864";

// The lock is taken with the first read and kept until the file is closed. It comes first: SQLite then needs
// no shared memory.
absl::Status LockFile(SqliteDatabase* database) {
  PENSTOCK_RETURN_IF_ERROR(database->Execute("PRAGMA locking_mode = EXCLUSIVE"));
  return database->Number("PRAGMA user_version").status();
}

absl::Status UseWriteAheadLog(SqliteDatabase* database) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string mode, database->Text("PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return absl::FailedPreconditionError(
        absl::StrCat("store '", database->path(), "' cannot have a write-ahead log (its journal mode stays '",
                     mode, "'): use a file on a local disk"));
  }
  return database->Execute(kJournal);
}

// Structure alone; what records hold is checked when they are read.
absl::Status CheckWhole(SqliteDatabase* database) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string result, database->Text("PRAGMA quick_check(1)"));
  if (result == "ok") return absl::OkStatus();
  return AnnotateError(database->Error(SQLITE_CORRUPT), result);
}

absl::Status PrepareFile(SqliteDatabase* database) {
  PENSTOCK_RETURN_IF_ERROR(LockFile(database));
  PENSTOCK_RETURN_IF_ERROR(CheckWhole(database));
  // Before anything is written: the file may be another program's.
  PENSTOCK_RETURN_IF_ERROR(CheckSqliteVersion(database, SqliteMigrations()));
  PENSTOCK_RETURN_IF_ERROR(UseWriteAheadLog(database));
  return MigrateSqlite(database, SqliteMigrations());
}

// DATA_LOSS of a record, with the file.
absl::Status Damaged(const SqliteDatabase& database, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kDataLoss) return status;
  return AnnotateError(database.Error(SQLITE_CORRUPT), status.message());
}

// A database, and what SQLite keeps beside it.
void RemoveFiles(const std::string& path) {
  for (const char* beside : {"", "-wal", "-shm", "-journal"}) unlink((path + beside).c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteEventStore>> SqliteEventStore::Open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database, SqliteDatabase::Open(path));
  PENSTOCK_RETURN_IF_ERROR(PrepareFile(database.get()));
  database->KeepFromOthers();
  auto store = std::unique_ptr<SqliteEventStore>(new SqliteEventStore(std::move(database)));
  PENSTOCK_RETURN_IF_ERROR(store->PrepareStatements());
  return store;
}

absl::Status SqliteEventStore::PrepareStatements() {
  MutexLock lock(&mutex_);
  const std::pair<SqliteStatement*, const char*> texts[] = {
      {&statements_.select_position,
       "SELECT last_sequence, coalesce((SELECT sequence FROM snapshots s WHERE s.job = j.job), 0) FROM jobs "
       "j WHERE job = ?"},
      {&statements_.insert_job, "INSERT INTO jobs VALUES (?, ?, 0) ON CONFLICT DO NOTHING"},
      {&statements_.set_last_sequence, "UPDATE jobs SET last_sequence = ? WHERE job = ?"},
      {&statements_.insert_event, "INSERT INTO events VALUES (?, ?, ?, ?)"},
      {&statements_.put_batch, "REPLACE INTO batches VALUES (?, ?, ?, ?)"},
      {&statements_.forget_batches, "DELETE FROM batches WHERE job = ? AND iteration < ?"},
      {&statements_.put_snapshot, "REPLACE INTO snapshots VALUES (?, ?, ?, ?)"},
      {&statements_.delete_events, "DELETE FROM events WHERE job = ? AND sequence <= ?"},
      {&statements_.delete_job, "DELETE FROM jobs WHERE job = ?"},
      {&statements_.delete_snapshot, "DELETE FROM snapshots WHERE job = ?"},
      {&statements_.delete_job_events, "DELETE FROM events WHERE job = ?"},
      {&statements_.delete_batches, "DELETE FROM batches WHERE job = ?"},
      {&statements_.set_largest_job, "UPDATE store SET largest_job = max(largest_job, ?)"},
      {&statements_.select_largest_job, "SELECT largest_job FROM store"},
      {&statements_.select_jobs, "SELECT job, job_id, last_sequence FROM jobs"},
      {&statements_.select_snapshots, "SELECT job, sequence, checksum, bytes FROM snapshots"},
      {&statements_.select_events,
       "SELECT job, sequence, checksum, bytes FROM events ORDER BY job, sequence"},
      {&statements_.select_batch, "SELECT checksum, bytes FROM batches WHERE job = ? AND iteration = ?"},
      {&statements_.check, "UPDATE store SET checks = checks + 1"},
  };
  for (const auto& [statement, text] : texts) {
    PENSTOCK_ASSIGN_OR_RETURN(*statement, database_->Prepare(text));
  }
  return absl::OkStatus();
}

absl::Status SqliteEventStore::ReadyLocked() const {
  if (stopped_) return absl::CancelledError("the store was stopped");
  return database_->CheckPlace();
}

absl::StatusOr<JobPositions> SqliteEventStore::PositionsLocked(absl::Span<const JobChange> changes) {
  JobPositions positions;
  for (uint64_t job : JobsOf(changes)) {
    SqliteQuery query(&statements_.select_position);
    PENSTOCK_ASSIGN_OR_RETURN(const bool stored, query.Bind(job).Next());
    if (stored) positions.Set(job, {.last_sequence = query.Number(0), .snapshot_sequence = query.Number(1)});
  }
  return positions;
}

absl::Status SqliteEventStore::AppendEventsLocked(const JobChange& change) {
  if (change.events.empty()) return absl::OkStatus();
  if (change.first_sequence == 1) {
    SqliteQuery query(&statements_.insert_job);
    PENSTOCK_RETURN_IF_ERROR(query.Bind(change.job).BindText(change.job_id).Run());
  }
  uint64_t sequence = change.first_sequence;
  for (const std::string& event : change.events) {
    SqliteQuery query(&statements_.insert_event);
    const uint64_t checksum = RecordChecksum(EventKey(change.job, sequence), event);
    PENSTOCK_RETURN_IF_ERROR(query.Bind(change.job).Bind(sequence++).Bind(checksum).BindBytes(event).Run());
  }
  SqliteQuery query(&statements_.set_last_sequence);
  return query.Bind(sequence - 1).Bind(change.job).Run();
}

absl::Status SqliteEventStore::WriteBatchesLocked(const JobChange& change) {
  for (const auto& [iteration, batch] : change.batches) {
    SqliteQuery query(&statements_.put_batch);
    const uint64_t checksum = RecordChecksum(BatchKey(change.job, iteration), batch);
    PENSTOCK_RETURN_IF_ERROR(query.Bind(change.job).Bind(iteration).Bind(checksum).BindBytes(batch).Run());
  }
  if (!change.forget_batches_before.has_value()) return absl::OkStatus();
  SqliteQuery query(&statements_.forget_batches);
  return query.Bind(change.job).Bind(*change.forget_batches_before).Run();
}

absl::Status SqliteEventStore::WriteSnapshotLocked(uint64_t job, const Snapshot& snapshot) {
  SqliteQuery put(&statements_.put_snapshot);
  const uint64_t checksum = RecordChecksum(SnapshotKey(job, snapshot.sequence), snapshot.bytes);
  PENSTOCK_RETURN_IF_ERROR(
      put.Bind(job).Bind(snapshot.sequence).Bind(checksum).BindBytes(snapshot.bytes).Run());
  SqliteQuery erase(&statements_.delete_events);
  return erase.Bind(job).Bind(snapshot.sequence).Run();
}

absl::Status SqliteEventStore::RemoveLocked(uint64_t job) {
  for (SqliteStatement* statement : {&statements_.delete_job, &statements_.delete_snapshot,
                                     &statements_.delete_job_events, &statements_.delete_batches}) {
    SqliteQuery query(statement);
    PENSTOCK_RETURN_IF_ERROR(query.Bind(job).Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteEventStore::WriteLocked(const JobChange& change) {
  if (change.remove) return RemoveLocked(change.job);
  PENSTOCK_RETURN_IF_ERROR(AppendEventsLocked(change));
  PENSTOCK_RETURN_IF_ERROR(WriteBatchesLocked(change));
  return change.snapshot.has_value() ? WriteSnapshotLocked(change.job, *change.snapshot) : absl::OkStatus();
}

absl::Status SqliteEventStore::Commit(absl::Span<const JobChange> changes) {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(ReadyLocked());
  PENSTOCK_RETURN_IF_ERROR(CheckRanges(changes));
  PENSTOCK_ASSIGN_OR_RETURN(const auto transaction, SqliteTransaction::Begin(database_.get()));
  PENSTOCK_ASSIGN_OR_RETURN(JobPositions positions, PositionsLocked(changes));
  PENSTOCK_RETURN_IF_ERROR(positions.Advance(changes));
  for (const JobChange& change : changes) PENSTOCK_RETURN_IF_ERROR(WriteLocked(change));
  {
    SqliteQuery query(&statements_.set_largest_job);
    PENSTOCK_RETURN_IF_ERROR(query.Bind(LargestJobOf(changes)).Run());
  }
  return transaction->Commit();
}

absl::Status SqliteEventStore::LoadSnapshotsLocked(LoadedJobs* loaded) {
  SqliteQuery query(&statements_.select_snapshots);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, query.Next());
    if (!more) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(
        loaded->AddSnapshot(query.Number(0), query.Number(1), query.Number(2), query.Bytes(3)));
  }
}

absl::Status SqliteEventStore::LoadEventsLocked(LoadedJobs* loaded) {
  SqliteQuery query(&statements_.select_events);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, query.Next());
    if (!more) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(
        loaded->AddEvent(query.Number(0), query.Number(1), query.Number(2), query.Bytes(3)));
  }
}

absl::StatusOr<std::vector<StoredJob>> SqliteEventStore::Load() {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(ReadyLocked());
  LoadedJobs loaded;
  SqliteQuery query(&statements_.select_jobs);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, query.Next());
    if (!more) break;
    loaded.AddJob(query.Number(0), query.Bytes(1), query.Number(2));
  }
  PENSTOCK_RETURN_IF_ERROR(Damaged(*database_, LoadSnapshotsLocked(&loaded)));
  PENSTOCK_RETURN_IF_ERROR(Damaged(*database_, LoadEventsLocked(&loaded)));
  auto jobs = std::move(loaded).Finish();
  if (!jobs.ok()) return Damaged(*database_, jobs.status());
  return jobs;
}

absl::StatusOr<uint64_t> SqliteEventStore::LargestJob() {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(ReadyLocked());
  SqliteQuery query(&statements_.select_largest_job);
  PENSTOCK_RETURN_IF_ERROR(query.Next().status());
  return query.Number(0);
}

absl::StatusOr<std::string> SqliteEventStore::GetBatch(uint64_t job, uint64_t iteration) {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(ReadyLocked());
  SqliteQuery query(&statements_.select_batch);
  PENSTOCK_ASSIGN_OR_RETURN(const bool stored, query.Bind(job).Bind(iteration).Next());
  if (!stored) return BatchNotFound(job, iteration);
  std::string batch = query.Bytes(1);
  PENSTOCK_RETURN_IF_ERROR(
      Damaged(*database_, CheckRecord(BatchKey(job, iteration), batch, query.Number(0))));
  return batch;
}

class SqliteEventStore::Copy final : public StoreCopy {
 public:
  Copy(SqliteEventStore* store, std::string path, std::unique_ptr<SqliteDatabase> file,
       std::unique_ptr<SqliteCopy> copy)
      : store_(store), path_(std::move(path)), file_(std::move(file)), copy_(std::move(copy)) {}
  ~Copy() override {
    MutexLock lock(&store_->mutex_);
    copy_ = nullptr;
    file_ = nullptr;
    RemoveFiles(path_);
    store_->copying_ = false;
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  absl::StatusOr<bool> Step() override {
    MutexLock lock(&store_->mutex_);
    PENSTOCK_RETURN_IF_ERROR(store_->ReadyLocked());
    PENSTOCK_ASSIGN_OR_RETURN(const bool done, copy_->Step(kCopiedPages));
    copied_bytes_ = copy_->copied_pages() * kPageBytes;
    total_bytes_ = copy_->total_pages() * kPageBytes;
    if (!done) return false;
    copy_ = nullptr;
    file_ = nullptr;  // written and closed: it is whole
    return true;
  }

  const std::string& path() const override { return path_; }
  uint64_t copied_bytes() const override { return copied_bytes_; }
  uint64_t total_bytes() const override { return total_bytes_; }

 private:
  // A step is about a mebibyte: commits wait no longer than for one of their own.
  static constexpr int kCopiedPages = 256;
  static constexpr uint64_t kPageBytes = 4096;

  SqliteEventStore* const store_;
  const std::string path_;
  // Null when all is copied.
  std::unique_ptr<SqliteDatabase> file_;
  std::unique_ptr<SqliteCopy> copy_;
  uint64_t copied_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<StoreCopy>> SqliteEventStore::BeginCopy() {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(ReadyLocked());
  if (copying_) return absl::ResourceExhaustedError("another backup of this store runs: wait for it");
  std::string path = absl::StrCat(database_->path(), ".backup");
  RemoveFiles(path);  // what a planner left that was killed
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> file, SqliteDatabase::Open(path));
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<SqliteCopy> copy, SqliteCopy::Begin(database_.get(), file.get()));
  copying_ = true;
  return std::make_unique<Copy>(this, std::move(path), std::move(file), std::move(copy));
}

absl::Status SqliteEventStore::Check() {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(ReadyLocked());
  SqliteQuery query(&statements_.check);
  return query.Run();
}

}  // namespace penstock
