#include "planner/service/store/postgres/postgres_schema.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// term is a key so that to change it waits for whoever holds the row FOR KEY SHARE, a commit; to renew the
// lease does not.
constexpr char kVersion1[] = R"(DO $$ BEGIN
CREATE TABLE penstock_store (
  only_row boolean PRIMARY KEY CHECK (only_row),
  largest_job bigint NOT NULL,
  last_commit bytea NOT NULL
);
INSERT INTO penstock_store VALUES (true, 0, '');
CREATE TABLE penstock_checks (
  only_row boolean PRIMARY KEY CHECK (only_row),
  checks bigint NOT NULL
);
INSERT INTO penstock_checks VALUES (true, 0);
CREATE TABLE penstock_lease (
  only_row boolean UNIQUE NOT NULL CHECK (only_row),
  term bigint PRIMARY KEY,
  holder text NOT NULL,
  expires_at timestamptz NOT NULL
);
INSERT INTO penstock_lease VALUES (true, 0, '', 'epoch');
CREATE TABLE penstock_jobs (
  job bigint PRIMARY KEY,
  job_id text NOT NULL,
  last_sequence bigint NOT NULL
);
CREATE TABLE penstock_snapshots (
  job bigint PRIMARY KEY,
  sequence bigint NOT NULL,
  checksum bigint NOT NULL,
  bytes bytea NOT NULL
);
CREATE TABLE penstock_events (
  job bigint NOT NULL,
  sequence bigint NOT NULL,
  checksum bigint NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (job, sequence)
);
CREATE TABLE penstock_batches (
  job bigint NOT NULL,
  iteration bigint NOT NULL,
  checksum bigint NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (job, iteration)
);
END $$)";

constexpr const char* kMigrations[] = {kVersion1};

// An arbitrary number: whoever migrates holds the lock of this name.
constexpr uint64_t kMigrationLock = 0x706e7374;

absl::Status CheckVersion(const std::string& server, uint64_t version, uint64_t known) {
  if (version <= known) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "store '", server, "' has version ", version, ", of a newer planner; this one knows versions up to ",
      known, ": run the newer planner, or use another database"));
}

// 0 where there is no store.
absl::StatusOr<uint64_t> ReadVersion(PostgresConnection* connection, Deadline deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto exists,
      connection->Run({{.sql = "SELECT (to_regclass('penstock_version') IS NOT NULL)::int::bigint"}},
                      deadline));
  if (exists[0].Number(0, 0) == 0) return 0;
  PENSTOCK_ASSIGN_OR_RETURN(
      auto version,
      connection->Run({{.sql = "SELECT coalesce(max(version), 0) FROM penstock_version"}}, deadline));
  return version[0].Number(0, 0);
}

// Inside a transaction, with the lock.
absl::Status MigrateLocked(PostgresConnection* connection, absl::Span<const char* const> migrations,
                           Deadline deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t version, ReadVersion(connection, deadline));
  PENSTOCK_RETURN_IF_ERROR(CheckVersion(connection->server(), version, migrations.size()));
  std::vector<PostgresStatement> statements;
  for (uint64_t i = version; i < migrations.size(); ++i) {
    statements.push_back({.sql = migrations[i]});
    statements.push_back({.sql = "INSERT INTO penstock_version VALUES ($1)", .parameters = {i + 1}});
  }
  statements.push_back({.sql = "COMMIT"});
  return connection->Run(statements, deadline).status();
}

}  // namespace

absl::Span<const char* const> PostgresMigrations() { return kMigrations; }

absl::Status MigratePostgres(PostgresConnection* connection, absl::Span<const char* const> migrations,
                             Deadline deadline) {
  PENSTOCK_RETURN_IF_ERROR(connection->Connect(deadline));
  // A role that may only use the tables does not try to make them.
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t version, ReadVersion(connection, deadline));
  PENSTOCK_RETURN_IF_ERROR(CheckVersion(connection->server(), version, migrations.size()));
  if (version == migrations.size()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      connection
          ->Run({{.sql = "BEGIN"},
                 {.sql = "SELECT 1 FROM pg_advisory_xact_lock($1::bigint)", .parameters = {kMigrationLock}},
                 {.sql = "CREATE TABLE IF NOT EXISTS penstock_version (version bigint PRIMARY KEY)"}},
                deadline)
          .status());
  const absl::Status status = MigrateLocked(connection, migrations, deadline);
  connection->RollBack();
  return status;
}

}  // namespace penstock
