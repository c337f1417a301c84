// A safetensors file that is read piece by piece: its header is in memory, its tensors are not.
//
//   PENSTOCK_ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::Open("model.safetensors"));
//   const StoredTensor& tensor = file.tensors().at("lm_head.weight");
//   PENSTOCK_RETURN_IF_ERROR(file.Read(tensor, /*offset=*/0, absl::MakeSpan(buffer)));
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/process/file_descriptor.h"
#include "common/safetensors/header.h"

namespace penstock {

class SafetensorsReader {
 public:
  // Reads the header. Possible errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE, INVALID_ARGUMENT (no such
  // file, or one that is broken or truncated); all name the path.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // Fills `bytes` from the tensor's data, from `offset` on. Any thread. Possible errors: UNAVAILABLE (names
  // the path).
  absl::Status Read(const StoredTensor& tensor, uint64_t offset, absl::Span<char> bytes) const;

 private:
  std::string path_;
  FileDescriptor file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace penstock
