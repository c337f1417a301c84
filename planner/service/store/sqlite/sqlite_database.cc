#include "planner/service/store/sqlite/sqlite_database.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/process/file_descriptor.h"
#include "common/status/status_macros.h"
#include "planner/service/store/sqlite/sqlite_error.h"

namespace penstock {
namespace {

// How long a process that is just ending may still have the file.
constexpr int kBusyMilliseconds = 1000;

// SQLite gives names like ":memory:" and "file:..." a meaning of its own; a path never has one.
std::string AsPath(const std::string& path) { return path.front() == '/' ? path : absl::StrCat("./", path); }

}  // namespace

SqliteQuery& SqliteQuery::Bind(uint64_t number) {
  const int code = sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(number));
  if (error_ == SQLITE_OK) error_ = code;
  return *this;
}

SqliteQuery& SqliteQuery::BindBytes(absl::string_view bytes) {
  // A null pointer would be NULL, not empty bytes.
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  const int code = sqlite3_bind_blob64(statement_, ++bound_, data, bytes.size(), SQLITE_STATIC);
  if (error_ == SQLITE_OK) error_ = code;
  return *this;
}

SqliteQuery& SqliteQuery::BindText(absl::string_view text) {
  const char* data = text.data() == nullptr ? "" : text.data();
  const int code = sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (error_ == SQLITE_OK) error_ = code;
  return *this;
}

absl::StatusOr<bool> SqliteQuery::Next() {
  if (error_ != SQLITE_OK) return database_->Error(error_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->Error(code);
}

absl::Status SqliteQuery::Run() { return Next().status(); }

uint64_t SqliteQuery::Number(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_, column));
}

std::string SqliteQuery::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the path of the store's file is empty");
  auto database = std::unique_ptr<SqliteDatabase>(new SqliteDatabase(path));
  PENSTOCK_RETURN_IF_ERROR(database->OpenFile());
  return database;
}

void SqliteDatabase::KeepFromOthers() const {
  for (const char* beside : {"", "-wal", "-shm"}) {
    const std::string path = absl::StrCat(path_, beside);
    struct stat found = {};
    if (stat(path.c_str(), &found) != 0 || (found.st_mode & (S_IRWXG | S_IRWXO)) == 0) continue;
    // Not by a descriptor: closing it would end SQLite's locks.
    if (chmod(path.c_str(), found.st_mode & S_IRWXU) != 0)
      LogWarning("others may read the store, and the secrets in it", {{"path", path}});
  }
}

absl::Status SqliteDatabase::OpenFile() {
  // SQLite would make a file that everyone reads. Where there is one, or cannot be one, it says so.
  FileDescriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR)).Close();
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(AsPath(path_).c_str(), &handle, flags, nullptr);
  // It has a handle, which holds the error, even when it fails.
  handle_.reset(handle);
  if (code != SQLITE_OK) return Error(code);
  sqlite3_busy_timeout(handle, kBusyMilliseconds);
  // SQLite opens a file that it may not write for reading.
  if (sqlite3_db_readonly(handle, "main") == 1) return Error(SQLITE_READONLY);
  PENSTOCK_ASSIGN_OR_RETURN(place_, FindPlace());
  return absl::OkStatus();
}

absl::StatusOr<SqliteDatabase::Place> SqliteDatabase::FindPlace() const {
  struct stat found = {};
  if (stat(path_.c_str(), &found) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("store '", path_, "': ", std::strerror(errno)));
  }
  return Place{.device = found.st_dev, .inode = found.st_ino};
}

absl::Status SqliteDatabase::CheckPlace() const {
  const auto found = FindPlace();
  if (found.ok() && found->device == place_.device && found->inode == place_.inode) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("store '", path_,
                   "' was moved or deleted while it was open, and what is written to it now would be lost: "
                   "put it back, or restart the planner"));
}

absl::Status SqliteDatabase::Error(int code) const {
  if (handle_ == nullptr) return SqliteError(code, 0, path_, sqlite3_errstr(code));
  // SQLite's text belongs to the last call that failed; errno to the last call of the system that did.
  const bool last = sqlite3_extended_errcode(handle_.get()) == code;
  const bool of_system = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  return SqliteError(code, last && of_system ? sqlite3_system_errno(handle_.get()) : 0, path_,
                     last ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code));
}

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  return Error(sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr));
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const std::string& sql) {
  sqlite3_stmt* prepared = nullptr;
  const int code =
      sqlite3_prepare_v3(handle_.get(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
  if (code != SQLITE_OK) return Error(code);
  SqliteStatement statement;
  statement.database_ = this;
  statement.statement_.reset(prepared);
  return statement;
}

absl::StatusOr<uint64_t> SqliteDatabase::Number(const std::string& sql) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  SqliteQuery query(&statement);
  PENSTOCK_RETURN_IF_ERROR(query.Next().status());
  return query.Number(0);
}

absl::StatusOr<std::string> SqliteDatabase::Text(const std::string& sql) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  SqliteQuery query(&statement);
  PENSTOCK_RETURN_IF_ERROR(query.Next().status());
  return query.Bytes(0);
}

absl::StatusOr<std::unique_ptr<SqliteTransaction>> SqliteTransaction::Begin(SqliteDatabase* database) {
  PENSTOCK_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  return std::unique_ptr<SqliteTransaction>(new SqliteTransaction(database));
}

SqliteTransaction::~SqliteTransaction() {
  // Some errors roll back by themselves. Where this fails nothing is left behind either: without the mark of
  // a commit it is not there for whoever opens the file next.
  if (database_->in_transaction()) database_->Execute("ROLLBACK").IgnoreError();
}

}  // namespace penstock
