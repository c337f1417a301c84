// A file of a dataset under construction: what is written is aside until it is put in place.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/system_error.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock {

// Removed with its scope unless it was put in place. Possible errors of all methods: those of the file
// system, naming the path.
class PartialFile {
 public:
  // Aside from what is to become `final_path`, and beside the file that it links to if it is a link.
  static absl::StatusOr<PartialFile> CreateFor(const std::string& final_path, const char* extension) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string target, FileToReplace(final_path));
    std::string path = absl::StrCat(target, extension);
    std::FILE* stream = std::fopen(path.c_str(), "w+be");
    if (stream == nullptr) return SystemError("create", path);
    return PartialFile(std::move(path), std::move(target), stream);
  }

  PartialFile(PartialFile&& other) noexcept
      : path_(std::move(other.path_)),
        target_(std::move(other.target_)),
        stream_(std::exchange(other.stream_, nullptr)) {}
  PartialFile& operator=(PartialFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(target_, other.target_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~PartialFile() {
    if (stream_ == nullptr) return;
    std::fclose(stream_);
    std::remove(path_.c_str());
  }

  template <typename T>
  absl::Status Write(const T* values, size_t count) {
    if (std::fwrite(values, sizeof(T), count, stream_) != count) return SystemError("write", path_);
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<size_t> Read(T* values, size_t count) {
    const size_t read = std::fread(values, sizeof(T), count, stream_);
    if (std::ferror(stream_) != 0) return SystemError("read", path_);
    return read;
  }

  void Rewind() { std::rewind(stream_); }

  // Everything is on disk when this returns.
  absl::Status Sync() {
    if (std::fflush(stream_) != 0 || fsync(fileno(stream_)) != 0) return SystemError("write", path_);
    return absl::OkStatus();
  }

  absl::Status MoveIntoPlace() {
    if (std::rename(path_.c_str(), target_.c_str()) != 0) return SystemError("rename to", target_);
    std::fclose(std::exchange(stream_, nullptr));
    return absl::OkStatus();
  }

 private:
  PartialFile(std::string path, std::string target, std::FILE* stream)
      : path_(std::move(path)), target_(std::move(target)), stream_(stream) {}

  std::string path_;
  std::string target_;
  std::FILE* stream_ = nullptr;
};

}  // namespace penstock
