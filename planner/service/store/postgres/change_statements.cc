#include "planner/service/store/postgres/change_statements.h"

#include "planner/service/store/record_checksum.h"

namespace penstock {
namespace {

using Statements = std::vector<PostgresStatement>;

void Remove(uint64_t job, Statements* statements) {
  for (const char* sql :
       {"DELETE FROM penstock_jobs WHERE job = $1", "DELETE FROM penstock_snapshots WHERE job = $1",
        "DELETE FROM penstock_events WHERE job = $1", "DELETE FROM penstock_batches WHERE job = $1"}) {
    statements->push_back({.sql = sql, .parameters = {job}});
  }
}

void AppendEvents(const JobChange& change, Statements* statements) {
  if (change.events.empty()) return;
  if (change.first_sequence == 1) {
    statements->push_back(
        {.sql = "INSERT INTO penstock_jobs VALUES ($1, $2, 0)", .parameters = {change.job, change.job_id}});
  }
  uint64_t sequence = change.first_sequence;
  for (const std::string& event : change.events) {
    const uint64_t checksum = RecordChecksum(EventKey(change.job, sequence), event);
    statements->push_back({.sql = "INSERT INTO penstock_events VALUES ($1, $2, $3, $4)",
                           .parameters = {change.job, sequence++, checksum, event}});
  }
  statements->push_back({.sql = "UPDATE penstock_jobs SET last_sequence = $2 WHERE job = $1",
                         .parameters = {change.job, sequence - 1}});
}

void WriteBatches(const JobChange& change, Statements* statements) {
  for (const auto& [iteration, batch] : change.batches) {
    statements->push_back(
        {.sql = "INSERT INTO penstock_batches VALUES ($1, $2, $3, $4) ON CONFLICT (job, iteration) "
                "DO UPDATE SET checksum = excluded.checksum, bytes = excluded.bytes",
         .parameters = {change.job, iteration, RecordChecksum(BatchKey(change.job, iteration), batch),
                        batch}});
  }
  if (!change.forget_batches_before.has_value()) return;
  statements->push_back({.sql = "DELETE FROM penstock_batches WHERE job = $1 AND iteration < $2",
                         .parameters = {change.job, *change.forget_batches_before}});
}

void WriteSnapshot(uint64_t job, const Snapshot& snapshot, Statements* statements) {
  const uint64_t checksum = RecordChecksum(SnapshotKey(job, snapshot.sequence), snapshot.bytes);
  statements->push_back(
      {.sql =
           "INSERT INTO penstock_snapshots VALUES ($1, $2, $3, $4) ON CONFLICT (job) "
           "DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, bytes = excluded.bytes",
       .parameters = {job, snapshot.sequence, checksum, snapshot.bytes}});
  statements->push_back({.sql = "DELETE FROM penstock_events WHERE job = $1 AND sequence <= $2",
                         .parameters = {job, snapshot.sequence}});
}

}  // namespace

std::vector<PostgresStatement> StatementsOf(absl::Span<const JobChange> changes) {
  Statements statements;
  for (const JobChange& change : changes) {
    if (change.remove) {
      Remove(change.job, &statements);
      continue;
    }
    AppendEvents(change, &statements);
    WriteBatches(change, &statements);
    if (change.snapshot.has_value()) WriteSnapshot(change.job, *change.snapshot, &statements);
  }
  return statements;
}

}  // namespace penstock
