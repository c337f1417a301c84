// The header of a safetensors file (huggingface/safetensors): 8 bytes of length, then JSON with type, shape
// and offsets of each tensor. Knows no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::worker {

// Bytes before the JSON.
inline constexpr size_t kTensorHeaderLengthBytes = 8;

struct TensorEntry {
  // As the format names it: "F32".
  std::string type;
  std::vector<int64_t> shape;
  // Of its data, behind the header. Within the file.
  size_t begin = 0;
  size_t end = 0;
};

struct TensorHeader {
  // Where the data begins in the file.
  size_t data_begin = 0;
  // By the tensor's name.
  std::map<std::string, TensorEntry> entries;
};

// `contents` is the whole file.
// Possible errors: INVALID_ARGUMENT (no such file, or one that is broken or truncated: names the tensor).
absl::StatusOr<TensorHeader> ParseTensorHeader(absl::string_view contents);

}  // namespace penstock::worker
