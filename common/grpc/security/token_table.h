// The file of tokens by which callers without a certificate are known. A line a token:
//
//   TOKEN ROLE [OWNER]      # what follows a '#' is left out
//
// The file is read again when it has changed; one that has become wrong is reported and the tokens before it
// stay, so that a slip of an editor locks nobody out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/grpc/security/caller.h"
#include "common/sync/sync.h"

namespace penstock {

// Shorter ones can be guessed.
inline constexpr size_t kShortestToken = 16;

// Thread-safe.
class TokenTable {
 public:
  // Possible errors: those of ReadFile; INVALID_ARGUMENT (names the file and the line, never the token).
  static absl::StatusOr<std::unique_ptr<TokenTable>> Open(const std::string& path);

  // Who has the token; nothing: nobody. Takes as long for every token of one length, so that a wrong one
  // cannot be felt towards a right one.
  std::optional<Caller> Find(absl::string_view token);

 private:
  struct Entry {
    std::string token;
    Caller caller;
  };
  // What tells one state of the file from the next.
  struct Version {
    int64_t modified_ns = -1;
    int64_t bytes = -1;
    uint64_t inode = 0;
    bool operator==(const Version&) const = default;
  };

  explicit TokenTable(std::string path) : path_(std::move(path)) {}
  static Version VersionOf(const std::string& path);
  static absl::StatusOr<std::vector<Entry>> Parse(absl::string_view text);
  absl::StatusOr<std::vector<Entry>> Read() const;
  void ReadAgainLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  Version version_ ABSL_GUARDED_BY(mutex_);
  // When the file was looked at.
  absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace penstock
