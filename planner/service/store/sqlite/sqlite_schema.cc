#include "planner/service/store/sqlite/sqlite_schema.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Marks files as Penstock's: "pnst".
constexpr uint64_t kApplicationId = 0x706e7374;

// Snapshots and batches lie apart from what changes with each event: SQLite writes rows as a whole. `checks`
// is written when the store is asked whether it can be.
constexpr char kVersion1[] = R"(
CREATE TABLE store (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  largest_job INTEGER NOT NULL,
  checks INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, 0, 0);
CREATE TABLE jobs (
  job INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL,
  last_sequence INTEGER NOT NULL
) STRICT;
CREATE TABLE snapshots (
  job INTEGER PRIMARY KEY,
  sequence INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
CREATE TABLE events (
  job INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE batches (
  job INTEGER NOT NULL,
  iteration INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, iteration)
) STRICT, WITHOUT ROWID;
)";

constexpr const char* kMigrations[] = {kVersion1};

absl::Status CheckOwner(SqliteDatabase* database) {
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t application, database->Number("PRAGMA application_id"));
  if (application == kApplicationId) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t tables, database->Number("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && tables == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("store '", database->path(), "' is a database of another program: use another file"));
}

absl::Status Migrate(SqliteDatabase* database, const char* migration, uint64_t to_version) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto transaction, SqliteTransaction::Begin(database));
  PENSTOCK_RETURN_IF_ERROR(database->Execute(migration));
  PENSTOCK_RETURN_IF_ERROR(database->Execute(
      absl::StrCat("PRAGMA application_id = ", kApplicationId, "; PRAGMA user_version = ", to_version)));
  return transaction->Commit();
}

}  // namespace

absl::Span<const char* const> SqliteMigrations() { return kMigrations; }

absl::Status CheckSqliteVersion(SqliteDatabase* database, absl::Span<const char* const> migrations) {
  PENSTOCK_RETURN_IF_ERROR(CheckOwner(database));
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t version, database->Number("PRAGMA user_version"));
  if (version <= migrations.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("store '", database->path(), "' has version ", version,
                                                    ", of a newer planner; this one knows versions up to ",
                                                    migrations.size(),
                                                    ": run the newer planner, or use another file"));
}

absl::Status MigrateSqlite(SqliteDatabase* database, absl::Span<const char* const> migrations) {
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t version, database->Number("PRAGMA user_version"));
  for (uint64_t i = version; i < migrations.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(Migrate(database, migrations[i], i + 1));
  }
  return absl::OkStatus();
}

}  // namespace penstock
