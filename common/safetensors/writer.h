// A safetensors file that is written piece by piece, so that no tensor need be in memory. What is in it is
// said first, because it stands at the beginning.
//
//   PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter file,
//                             SafetensorsWriter::Create(path, {{"a.weight", "F32", {2, 3}}}));
//   PENSTOCK_RETURN_IF_ERROR(file.Append(bytes));   // of all tensors, one after the other
//   PENSTOCK_RETURN_IF_ERROR(file.Finish());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/process/file_descriptor.h"

namespace penstock {

struct TensorToWrite {
  std::string name;
  // As the format names it; one that ElementBytesOf knows.
  std::string type;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  // Removes what is not finished.
  ~SafetensorsWriter();

  // Writes aside ("PATH.partial"), into a folder that is there. Possible errors: PERMISSION_DENIED,
  // RESOURCE_EXHAUSTED (the disk is full), UNAVAILABLE; all name the path.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  const std::vector<TensorToWrite>& tensors);

  // The next bytes of the tensors' data. Possible errors: those of Create.
  absl::Status Append(absl::string_view bytes);

  // Flushes to disk what was appended: of a slow disk it is known how far it has come, and Finish has little
  // left to do. Possible errors: those of Create.
  absl::Status Flush();

  // Flushes to disk and renames. Possible errors: those of Create; INTERNAL (fewer or more bytes were
  // appended than the tensors have).
  absl::Status Finish();

  // Of the whole file as far as it is written, the header included.
  uint64_t bytes() const { return bytes_; }
  // As Crc32 counts it.
  uint32_t crc32() const { return crc32_; }

 private:
  SafetensorsWriter() = default;
  absl::Status Write(absl::string_view bytes);

  std::string path_;
  // Empty when it has its final name.
  std::string partial_;
  FileDescriptor file_;
  // Not yet appended.
  uint64_t left_ = 0;
  uint64_t bytes_ = 0;
  uint32_t crc32_ = 0;
};

}  // namespace penstock
