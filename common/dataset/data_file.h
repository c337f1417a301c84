// A file that is read in pieces, anywhere in it.
//
// Not mapped into memory: a file that shrinks under a mapping ends the process with SIGBUS. Here it is an
// error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"
#include "common/status/status_macros.h"

namespace penstock {

class DataFile {
 public:
  // Possible errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no regular file); all name the path.
  static absl::StatusOr<DataFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // When it was opened.
  uint64_t size() const { return size_; }

  // Reads `bytes` bytes from `offset`. Thread-safe.
  // Possible errors: DATA_LOSS (the file ends before), UNAVAILABLE (reading failed); both name the path.
  absl::Status Read(uint64_t offset, size_t bytes, void* to) const;

  // Calls visit(i, value) for `count` numbers that lie one behind the other from `offset`, until it returns
  // an error. Reads large pieces.
  template <typename T, typename Visit>
  absl::Status ForEach(uint64_t offset, uint64_t count, const Visit& visit) const {
    constexpr uint64_t kPiece = 1 << 16;
    std::vector<T> piece;
    for (uint64_t first = 0; first < count; first += piece.size()) {
      piece.resize(count - first < kPiece ? count - first : kPiece);
      PENSTOCK_RETURN_IF_ERROR(Read(offset + first * sizeof(T), piece.size() * sizeof(T), piece.data()));
      for (size_t i = 0; i < piece.size(); ++i) PENSTOCK_RETURN_IF_ERROR(visit(first + i, piece[i]));
    }
    return absl::OkStatus();
  }

 private:
  DataFile(std::string path, FileDescriptor file, uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}

  std::string path_;
  FileDescriptor file_;
  uint64_t size_ = 0;
};

}  // namespace penstock
