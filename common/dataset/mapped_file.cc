#include "common/dataset/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

absl::Status SystemError(const char* action, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", action, " '", path, "'"));
}

// Maps an open file of `size` bytes; an empty file has no mapping.
absl::StatusOr<const char*> Map(int descriptor, size_t size, const std::string& path) {
  if (size == 0) return nullptr;
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return SystemError("map", path);
  return static_cast<const char*>(data);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return SystemError("open", path);
  struct stat status = {};
  absl::StatusOr<const char*> data = nullptr;
  if (fstat(descriptor, &status) != 0) {
    data = SystemError("look at", path);
  } else if (!S_ISREG(status.st_mode)) {
    data = absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a regular file"));
  } else {
    data = Map(descriptor, static_cast<size_t>(status.st_size), path);
  }
  close(descriptor);  // the mapping stays
  if (!data.ok()) return data.status();
  return MappedFile(path, *data, static_cast<size_t>(status.st_size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

}  // namespace penstock
