// Who changed what: a JSON line for each call that changes jobs or the planner, and for each that was refused
// for who made it. A log of its own, because it is kept longer than what the planner says, and read by
// others.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<AuditLog> log,
//   AuditLog::Open("/var/log/penstock/audit.jsonl")); log->Write({.method = "DeleteJob", .role = "client",
//   .owner = "team", .address = "ipv4:10.0.0.5:41", ...});
//   // {"time":"2026-11-25T22:01:02.123Z","method":"DeleteJob","role":"client","owner":"team",
//   //  "address":"ipv4:10.0.0.5:41","job":"mix","code":"OK","reason":""}
//
// A file that is full is renamed PATH.1, the one before it PATH.2, and so on; the oldest goes. Refusals
// beyond a hundred a second are counted and not written: strangers must not fill the disk. Thread-safe; a
// line is written with one write(2). What cannot be written is said in the planner's log, and the planner
// goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"
#include "common/sync/sync.h"

namespace penstock {

struct AuditRecord {
  absl::Time time = {};
  // "DeleteJob".
  std::string method = {};
  // Empty where callers are not known.
  std::string role = {};
  std::string owner = {};
  // As gRPC names it; empty where it is not known.
  std::string address = {};
  // Empty: it was about no job.
  std::string job = {};
  // "OK", "PERMISSION_DENIED".
  std::string code = {};
  std::string reason = {};
  // Refused for who made it.
  bool refused = false;
};

struct AuditOptions {
  size_t file_bytes = size_t{64} << 20;
  // Full ones that are kept.
  int files = 4;
  uint64_t refusals_a_second = 100;
};

class AuditLog {
 public:
  // Appends to the file. Possible errors: of the system; names the file.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path,
                                                        const AuditOptions& options = {});

  void Write(const AuditRecord& record);

 private:
  AuditLog(const std::string& path, const AuditOptions& options) : path_(path), options_(options) {}

  absl::Status OpenFileLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RotateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the refusal is one of those that are written.
  bool MayWriteLocked(const AuditRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AppendLocked(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const AuditOptions options_;
  Mutex mutex_;
  FileDescriptor file_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Refusals of the second that began then.
  absl::Time second_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace penstock
