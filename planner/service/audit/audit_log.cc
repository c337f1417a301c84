#include "planner/service/audit/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/files/errors.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

std::string LineOf(const AuditRecord& record) {
  const nlohmann::ordered_json json = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", record.time, absl::UTCTimeZone())},
      {"method", record.method},
      {"role", record.role},
      {"owner", record.owner},
      {"address", record.address},
      {"job", record.job},
      {"code", record.code},
      {"reason", record.reason}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// That so many more were refused than there are lines.
std::string LineOfMore(absl::Time time, uint64_t refusals) {
  return LineOf({.time = time,
                 .method = "other",
                 .code = "PERMISSION_DENIED",
                 .reason = absl::StrCat(refusals, " more calls were refused in the second before")});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path,
                                                         const AuditOptions& options) {
  std::unique_ptr<AuditLog> log(new AuditLog(path, options));
  MutexLock lock(&log->mutex_);
  PENSTOCK_RETURN_IF_ERROR(log->OpenFileLocked());
  return log;
}

absl::Status AuditLog::OpenFileLocked() {
  file_ = FileDescriptor(
      open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR | S_IRGRP));
  struct stat found = {};
  if (file_.get() < 0 || fstat(file_.get(), &found) != 0) return FileError(path_, "opening audit log", errno);
  bytes_ = static_cast<size_t>(found.st_size);
  return absl::OkStatus();
}

absl::Status AuditLog::RotateLocked() {
  for (int number = options_.files - 1; number >= 1; --number) {
    const std::string from = absl::StrCat(path_, ".", number), to = absl::StrCat(path_, ".", number + 1);
    if (rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT)
      return FileError(from, "renaming audit log", errno);
  }
  if (rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()) != 0 && errno != ENOENT)
    return FileError(path_, "renaming audit log", errno);
  return OpenFileLocked();
}

bool AuditLog::MayWriteLocked(const AuditRecord& record) {
  if (record.time - second_ >= absl::Seconds(1)) {
    if (refusals_ > options_.refusals_a_second)
      AppendLocked(LineOfMore(record.time, refusals_ - options_.refusals_a_second)).IgnoreError();
    second_ = record.time;
    refusals_ = 0;
  }
  return !record.refused || ++refusals_ <= options_.refusals_a_second;
}

absl::Status AuditLog::AppendLocked(const std::string& line) {
  if (file_.get() < 0) PENSTOCK_RETURN_IF_ERROR(OpenFileLocked());
  if (bytes_ > 0 && bytes_ + line.size() > options_.file_bytes) PENSTOCK_RETURN_IF_ERROR(RotateLocked());
  const ssize_t written = write(file_.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) return FileError(path_, "writing audit log", errno);
  bytes_ += line.size();
  return absl::OkStatus();
}

void AuditLog::Write(const AuditRecord& record) {
  MutexLock lock(&mutex_);
  if (!MayWriteLocked(record)) return;
  const absl::Status status = AppendLocked(LineOf(record));
  if (status.ok() != failed_) return;
  failed_ = !status.ok();
  if (failed_) {
    LogError("the audit log cannot be written", {{"reason", status.ToString()}});
  } else {
    LogInfo("the audit log is written again");
  }
}

}  // namespace penstock
