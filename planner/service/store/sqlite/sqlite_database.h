// SQLite, as much as a store needs of it: statements that are kept, queries that clean up with their scope,
// transactions that roll back with theirs, and errors as absl::Status that name the file and say what to do.
//
//   PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement select, database->Prepare("SELECT bytes FROM t WHERE id = ?"));
//   SqliteQuery query(&select);
//   PENSTOCK_ASSIGN_OR_RETURN(bool found, query.Bind(7).Next());
//   if (found) return query.Bytes(0);
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

class SqliteDatabase;

// A prepared statement, to be used again and again, by one SqliteQuery at a time. Lives no longer than its
// database.
class SqliteStatement {
 public:
  SqliteStatement() = default;

 private:
  friend class SqliteDatabase;
  friend class SqliteQuery;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };

  SqliteDatabase* database_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// One use of a statement. Parameters are bound in their order; bytes must live until the last Next().
class SqliteQuery {
 public:
  explicit SqliteQuery(SqliteStatement* statement)
      : database_(statement->database_), statement_(statement->statement_.get()) {}
  ~SqliteQuery() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  SqliteQuery(const SqliteQuery&) = delete;
  SqliteQuery& operator=(const SqliteQuery&) = delete;

  // At most 2^63 - 1.
  SqliteQuery& Bind(uint64_t number);
  SqliteQuery& BindBytes(absl::string_view bytes);
  SqliteQuery& BindText(absl::string_view text);

  // Whether there is a row (another row).
  absl::StatusOr<bool> Next();
  // Runs a statement that gives no rows.
  absl::Status Run();

  // Of the row; columns count from 0.
  uint64_t Number(int column) const;
  std::string Bytes(int column) const;

 private:
  SqliteDatabase* database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  // The first binding that failed.
  int error_ = SQLITE_OK;
};

// Not thread-safe.
class SqliteDatabase {
 public:
  // Opens or creates a file. Others are kept out for as long as it is open. Possible errors: as EventStore;
  // UNAVAILABLE when another process has it.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);

  const std::string& path() const { return path_; }

  // Runs statements, separated by semicolons, that give nothing back.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);
  // The first column of the first row.
  absl::StatusOr<uint64_t> Number(const std::string& sql);
  absl::StatusOr<std::string> Text(const std::string& sql);

  // For what SQLite does with a whole database.
  sqlite3* handle() const { return handle_.get(); }

  bool in_transaction() const { return sqlite3_get_autocommit(handle_.get()) == 0; }

  // Takes from everyone but the file's owner the right to read it, and what SQLite keeps beside it. New files
  // are made that way.
  void KeepFromOthers() const;

  // FAILED_PRECONDITION when the file is no longer at its path: what is written would be lost.
  absl::Status CheckPlace() const;

  // A result code of SQLite as status.
  absl::Status Error(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  // Which file a path leads to.
  struct Place {
    uint64_t device = 0;
    uint64_t inode = 0;
  };

  explicit SqliteDatabase(const std::string& path) : path_(path) {}
  absl::Status OpenFile();
  absl::StatusOr<Place> FindPlace() const;

  const std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
  Place place_;
};

// Rolled back with its scope unless it was committed.
class SqliteTransaction {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteTransaction>> Begin(SqliteDatabase* database);
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;

  absl::Status Commit() { return database_->Execute("COMMIT"); }

 private:
  explicit SqliteTransaction(SqliteDatabase* database) : database_(database) {}
  SqliteDatabase* database_;
};

}  // namespace penstock
