#include "common/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/errors.h"
#include "common/files/write_through.h"
#include "common/process/file_descriptor.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kNewFile = 0644;
constexpr mode_t kPermissions = 07777;
// As many as the kernel follows (path_resolution(7)).
constexpr int kMostLinks = 40;

absl::Status WriteAll(int descriptor, absl::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t written = write(descriptor, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path, "writing", errno);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(descriptor) != 0) return FileError(path, "flushing", errno);
  return absl::OkStatus();
}

absl::Status MakeParentFolder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  if (parent.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return FileError(parent.string(), "making folder", error.value());
  return absl::OkStatus();
}

// Whether the file is there, and cannot or must not be replaced by another.
bool IsWrittenThrough(const std::string& path, struct stat& file) {
  if (stat(path.c_str(), &file) != 0 || S_ISDIR(file.st_mode)) return false;
  return !S_ISREG(file.st_mode) || StandardStreamOf(file) >= 0;
}

absl::StatusOr<std::string> FollowLinks(std::string path) {
  for (int followed = 0; followed < kMostLinks; ++followed) {
    std::error_code no_link;
    const fs::path target = fs::read_symlink(path, no_link);
    if (no_link) return path;
    path = (fs::path(path).parent_path() / target).string();
  }
  return FileError(path, "following the links of", ELOOP);
}

absl::Status WriteAside(const std::string& partial, const std::string& path, absl::string_view contents) {
  const FileDescriptor file(
      open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kNewFile));
  if (file.get() < 0) return FileError(partial, "creating", errno);
  struct stat before = {};
  if (stat(path.c_str(), &before) == 0 && fchmod(file.get(), before.st_mode & kPermissions) != 0)
    return FileError(partial, "setting the permissions of", errno);
  return WriteAll(file.get(), contents, partial);
}

absl::Status Replace(const std::string& path, absl::string_view contents) {
  PENSTOCK_RETURN_IF_ERROR(MakeParentFolder(path));
  const std::string partial = absl::StrCat(path, ".partial");
  absl::Status status = WriteAside(partial, path, contents);
  if (status.ok() && rename(partial.c_str(), path.c_str()) != 0)
    status = FileError(path, "renaming to", errno);
  if (!status.ok()) {
    unlink(partial.c_str());
    return status;
  }
  const fs::path folder = fs::path(path).parent_path();
  return SyncFolder(folder.empty() ? "." : folder.string());
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FileError(path, "opening", errno);
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = read(file.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, "reading", errno);
    if (got == 0) return contents;
    contents.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status SyncFolder(const std::string& path) {
  const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder may be written to and not read: then its names are flushed when the system likes.
  if (folder.get() < 0 && errno == EACCES) return absl::OkStatus();
  if (folder.get() < 0) return FileError(path, "opening folder", errno);
  if (fsync(folder.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return absl::OkStatus();
  return FileError(path, "flushing folder", errno);
}

absl::Status SyncFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FileError(path, "opening", errno);
  return fsync(file.get()) == 0 ? absl::OkStatus() : FileError(path, "flushing", errno);
}

absl::StatusOr<std::string> FileToReplace(const std::string& path) {
  if (path.empty() || absl::EndsWith(path, "/"))
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' names no file"));
  PENSTOCK_ASSIGN_OR_RETURN(std::string target, FollowLinks(path));
  struct stat file = {};
  if (stat(target.c_str(), &file) != 0 || S_ISREG(file.st_mode)) return target;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' is ", S_ISDIR(file.st_mode) ? "a folder" : "no regular file", ": name a file to write"));
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  struct stat file = {};
  if (IsWrittenThrough(path, file)) return WriteThrough(path, file, contents);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string target, FileToReplace(path));
  return Replace(target, contents);
}

absl::Status RemoveFile(const std::string& path) {
  if (std::remove(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return absl::OkStatus();
  return FileError(path, "removing", errno);
}

absl::Status CheckWritable(const std::string& path) {
  struct stat file = {};
  if (IsWrittenThrough(path, file)) {
    if (StandardStreamOf(file) >= 0 || access(path.c_str(), W_OK) == 0) return absl::OkStatus();
    return FileError(path, "writing", errno);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string target, FileToReplace(path));
  PENSTOCK_RETURN_IF_ERROR(MakeParentFolder(target));
  const fs::path folder = fs::path(target).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return FileError(target, "writing", errno);
}

}  // namespace penstock
