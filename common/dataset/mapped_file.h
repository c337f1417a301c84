// A whole file in memory, read-only, loaded by the kernel as it is touched.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

class MappedFile {
 public:
  // Possible errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no regular file); all name the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::string_view contents() const { return {data_, size_}; }
  size_t size() const { return size_; }

  // A number at any alignment. `offset` + sizeof(T) must be within the file.
  template <typename T>
  T Load(size_t offset) const {
    T value;
    std::memcpy(&value, data_ + offset, sizeof(T));
    return value;
  }

 private:
  MappedFile(std::string path, const char* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace penstock
