#include "planner/service/store/sqlite/sqlite_copy.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<SqliteCopy>> SqliteCopy::Begin(SqliteDatabase* from, SqliteDatabase* to) {
  sqlite3_backup* const backup = sqlite3_backup_init(to->handle(), "main", from->handle(), "main");
  if (backup == nullptr) return to->Error(sqlite3_extended_errcode(to->handle()));
  return std::unique_ptr<SqliteCopy>(new SqliteCopy(to, backup));
}

absl::StatusOr<bool> SqliteCopy::Step(int pages) {
  const int code = sqlite3_backup_step(backup_.get(), pages);
  if (code == SQLITE_OK) return false;
  if (code == SQLITE_DONE) return true;
  return to_->Error(code);
}

}  // namespace penstock
