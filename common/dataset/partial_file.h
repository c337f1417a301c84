// A file of a dataset under construction: what is written is aside until it is put in place.
//
//   PENSTOCK_ASSIGN_OR_RETURN(PartialFile file, PartialFile::CreateFor("data/train.bin", ".partial"));
//   PENSTOCK_RETURN_IF_ERROR(file.Write(tokens.data(), tokens.size()));
//   const FileMark mark = file.mark();                        // and, once it is on disk: file.Sync()
//   ...
//   PENSTOCK_RETURN_IF_ERROR(file.MoveIntoPlace());
//
// Another process may go on at a mark with OpenAt.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/dataset/system_error.h"

namespace penstock {

// So much of a file, and what is in it.
struct FileMark {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;

  bool operator==(const FileMark&) const = default;
};

// Makes the folder that the file is to be in, where it is missing. Possible errors: those of the file system.
absl::Status MakeFolderOf(const std::string& path);

// Removed with its scope unless it was put in place, or is kept. Written at its end alone. Possible errors of
// all methods: those of the file system, naming the path.
class PartialFile {
 public:
  // Aside from what is to become `final_path`, and beside the file that it links to if it is a link.
  static absl::StatusOr<PartialFile> CreateFor(const std::string& final_path, const char* extension);

  // What another process has left, up to a mark; what is behind it is cut off. Kept. Possible errors:
  // NOT_FOUND, DATA_LOSS (it is shorter, or holds other bytes).
  static absl::StatusOr<PartialFile> OpenAt(const std::string& final_path, const char* extension,
                                            const FileMark& mark);

  // Removes what another process has left under that name; fine where nothing is.
  static absl::Status Remove(const std::string& final_path, const char* extension);

  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&& other) noexcept;
  ~PartialFile();

  template <typename T>
  absl::Status Write(const T* values, size_t count) {
    return WriteBytes({reinterpret_cast<const char*>(values), count * sizeof(T)});
  }

  // From where Rewind or the Read before has left off. Fewer than `count` at the end.
  template <typename T>
  absl::StatusOr<size_t> Read(T* values, size_t count) {
    const size_t read = std::fread(values, sizeof(T), count, stream_);
    if (std::ferror(stream_) != 0) return SystemError("read", path_);
    return read;
  }

  void Rewind() {
    std::rewind(stream_);
    moved_ = true;
  }

  // All that was written.
  const FileMark& mark() const { return mark_; }

  // Everything is on disk when this returns.
  absl::Status Sync();
  absl::Status MoveIntoPlace();

  // Closed and removed, kept or not. Nothing else may be called after it.
  void Discard();

  // From now on it stays when its scope ends.
  void Keep() { kept_ = true; }

 private:
  PartialFile(std::string path, std::string target, std::FILE* stream)
      : path_(std::move(path)), target_(std::move(target)), stream_(stream) {}

  absl::Status WriteBytes(absl::string_view bytes);

  std::string path_;
  std::string target_;
  std::FILE* stream_ = nullptr;
  FileMark mark_;
  FileMark synced_;
  // Since the last Write by reading.
  bool moved_ = false;
  bool kept_ = false;
};

}  // namespace penstock
