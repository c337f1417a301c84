// The tables of a SQLite store, and how a file of an older version becomes one of this version.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "planner/service/store/sqlite/sqlite_database.h"

namespace penstock {

// Migration i makes a file of version i (PRAGMA user_version) one of version i + 1; a new file is of version
// 0. What was released is never changed: add another.
absl::Span<const char* const> SqliteMigrations();

// Whether a file is a store that the migrations know, or new. Reads only. Possible errors:
// FAILED_PRECONDITION (of a newer version, or of another program), and those of EventStore.
absl::Status CheckSqliteVersion(SqliteDatabase* database, absl::Span<const char* const> migrations);

// Brings a file that was checked to the version that the migrations end with, each in a transaction of its
// own.
absl::Status MigrateSqlite(SqliteDatabase* database, absl::Span<const char* const> migrations);

}  // namespace penstock
