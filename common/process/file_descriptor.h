// A file descriptor that is closed with its scope.
#pragma once

#include <unistd.h>

#include <utility>

namespace penstock {

// Move-only; negative means "none".
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }

  int get() const { return value_; }
  // Somebody else closes it from now on.
  int Release() { return std::exchange(value_, -1); }
  void Close() {
    if (value_ >= 0) close(std::exchange(value_, -1));
  }

 private:
  int value_ = -1;
};

}  // namespace penstock
