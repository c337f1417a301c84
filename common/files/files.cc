#include "common/files/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

absl::Status ErrorFromErrno(const std::string& path, absl::string_view doing, int error) {
  const std::string message = absl::StrCat(doing, " '", path, "': ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status WriteAll(int descriptor, absl::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t written = write(descriptor, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrorFromErrno(path, "writing", errno);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(descriptor) != 0) return ErrorFromErrno(path, "flushing", errno);
  return absl::OkStatus();
}

absl::Status MakeParentFolder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) return ErrorFromErrno(parent.string(), "making folder", error.value());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return ErrorFromErrno(path, "opening", errno);
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = read(descriptor, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = errno;
      close(descriptor);
      if (got == 0) return contents;
      return ErrorFromErrno(path, "reading", error);
    }
    contents.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  PENSTOCK_RETURN_IF_ERROR(MakeParentFolder(path));
  const std::string partial = absl::StrCat(path, ".partial");
  const int descriptor = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return ErrorFromErrno(partial, "creating", errno);
  const absl::Status written = WriteAll(descriptor, contents, partial);
  close(descriptor);
  if (!written.ok()) {
    unlink(partial.c_str());
    return written;
  }
  if (rename(partial.c_str(), path.c_str()) != 0) return ErrorFromErrno(path, "renaming to", errno);
  return absl::OkStatus();
}

}  // namespace penstock
