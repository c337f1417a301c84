#include "common/grpc/security/token_table.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// How often the file is looked at, at most.
constexpr absl::Duration kLookAgain = absl::Seconds(1);

bool IsSame(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0;
}

absl::Status Wrong(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenTable>> TokenTable::Open(const std::string& path) {
  std::unique_ptr<TokenTable> table(new TokenTable(path));
  MutexLock lock(&table->mutex_);
  table->version_ = VersionOf(path);
  PENSTOCK_ASSIGN_OR_RETURN(table->entries_, table->Read());
  table->looked_ = absl::Now();
  return table;
}

std::optional<Caller> TokenTable::Find(absl::string_view token) {
  MutexLock lock(&mutex_);
  ReadAgainLocked();
  std::optional<Caller> found;
  for (const Entry& entry : entries_)
    if (IsSame(entry.token, token)) found = entry.caller;
  return found;
}

void TokenTable::ReadAgainLocked() {
  if (absl::Now() < looked_ + kLookAgain) return;
  looked_ = absl::Now();
  const Version version = VersionOf(path_);
  if (version == version_) return;
  version_ = version;
  absl::StatusOr<std::vector<Entry>> entries = Read();
  if (!entries.ok()) {
    LogError("the file of tokens is wrong now; those before stay", {{"reason", entries.status().ToString()}});
    return;
  }
  entries_ = *std::move(entries);
  LogInfo("the file of tokens was read again", {{"path", path_}, {"tokens", entries_.size()}});
}

TokenTable::Version TokenTable::VersionOf(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return {};
  constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
  return {.modified_ns = status.st_mtim.tv_sec * kNanosecondsPerSecond + status.st_mtim.tv_nsec,
          .bytes = status.st_size,
          .inode = status.st_ino};
}

absl::StatusOr<std::vector<TokenTable::Entry>> TokenTable::Read() const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_));
  absl::StatusOr<std::vector<Entry>> entries = Parse(text);
  if (!entries.ok()) return AnnotateError(entries.status(), path_);
  return entries;
}

absl::StatusOr<std::vector<TokenTable::Entry>> TokenTable::Parse(absl::string_view text) {
  std::vector<Entry> entries;
  size_t line_number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    const absl::string_view meant = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(meant, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (words.size() != 2 && words.size() != 3) return Wrong(line_number, "use TOKEN ROLE [OWNER]");
    if (words[0].size() < kShortestToken) {
      return Wrong(line_number, absl::StrCat("a token has at least ", kShortestToken, " characters"));
    }
    const std::optional<Role> role = RoleFromName(words[1]);
    if (!role.has_value()) return Wrong(line_number, "a role is viewer, worker, client or operator");
    if (words.size() == 3 && !IsOwnerName(words[2])) {
      return Wrong(line_number, "an owner is 1 to 128 letters, digits, '-', '_', '.' and '@'");
    }
    entries.push_back({std::string(words[0]), {*role, words.size() == 3 ? std::string(words[2]) : ""}});
  }
  if (entries.empty()) return absl::InvalidArgumentError("holds no token");
  return entries;
}

}  // namespace penstock
