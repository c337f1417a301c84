#include "common/dataset/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/system_error.h"

namespace penstock {

absl::StatusOr<DataFile> DataFile::Open(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError("open", path);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return SystemError("look at", path);
  if (!S_ISREG(status.st_mode))
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a regular file"));
  return DataFile(path, std::move(file), static_cast<uint64_t>(status.st_size));
}

absl::Status DataFile::Read(uint64_t offset, size_t bytes, void* to) const {
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file_.get(), next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::UnavailableError(absl::StrCat("reading '", path_, "': ", std::strerror(errno)));
    if (got == 0)
      return absl::DataLossError(absl::StrCat("'", path_, "' has nothing at offset ", offset, ", but had ",
                                              size_, " bytes when it was opened: it was cut while in use"));
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace penstock
