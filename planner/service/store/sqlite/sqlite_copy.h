// SQLite's online backup of one open database into a new file (https://sqlite.org/backup.html). What the same
// connection commits meanwhile goes into the copy, too. Not thread-safe: neither are the two databases.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "planner/service/store/sqlite/sqlite_database.h"

namespace penstock {

class SqliteCopy {
 public:
  // Both must outlive the copy; `to` is new.
  static absl::StatusOr<std::unique_ptr<SqliteCopy>> Begin(SqliteDatabase* from, SqliteDatabase* to);

  // Copies at most so many pages; true when all are copied.
  absl::StatusOr<bool> Step(int pages);

  uint64_t copied_pages() const { return total_pages() - sqlite3_backup_remaining(backup_.get()); }
  uint64_t total_pages() const { return sqlite3_backup_pagecount(backup_.get()); }

 private:
  struct Finish {
    void operator()(sqlite3_backup* backup) const { sqlite3_backup_finish(backup); }
  };
  SqliteCopy(SqliteDatabase* to, sqlite3_backup* backup) : to_(to), backup_(backup) {}

  SqliteDatabase* const to_;
  std::unique_ptr<sqlite3_backup, Finish> backup_;
};

}  // namespace penstock
