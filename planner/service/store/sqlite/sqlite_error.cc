#include "planner/service/store/sqlite/sqlite_error.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

struct Meaning {
  absl::StatusCode code;
  absl::string_view advice;
};

Meaning MeaningOf(int code, int system_error) {
  if (system_error == EDQUOT || system_error == ENOSPC) code = SQLITE_FULL;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return {absl::StatusCode::kResourceExhausted,
              "make room on its disk; the planner goes on by itself when there is some"};
    case SQLITE_NOMEM:
      return {absl::StatusCode::kResourceExhausted, "give the planner more memory"};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {absl::StatusCode::kUnavailable,
              "another process has it (`fuser` names it): end that one, or use another file"};
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return {absl::StatusCode::kFailedPrecondition,
              "the file and its folder must be writable for the planner's user"};
    case SQLITE_CANTOPEN:
      return {absl::StatusCode::kFailedPrecondition,
              "its folder must exist and be writable for the planner's user, and the path must name a file"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {
          absl::StatusCode::kDataLoss,
          "the file is damaged: put a copy of it in its place, or move it away to begin with an empty store"};
    case SQLITE_IOERR:
      return {absl::StatusCode::kUnavailable, "look after its disk (the kernel's log says more)"};
    case SQLITE_INTERRUPT:
      return {absl::StatusCode::kCancelled, "the store was stopped"};
    default:
      return {absl::StatusCode::kInternal, "this is a fault of the planner"};
  }
}

}  // namespace

absl::Status SqliteError(int code, int system_error, const std::string& path, absl::string_view text) {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return absl::OkStatus();
  const Meaning meaning = MeaningOf(code, system_error);
  std::string message = absl::StrCat("store '", path, "': ", text);
  if (system_error != 0) absl::StrAppend(&message, " (", std::strerror(system_error), ")");
  return absl::Status(meaning.code, absl::StrCat(message, "; ", meaning.advice));
}

}  // namespace penstock
