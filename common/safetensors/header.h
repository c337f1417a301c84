// The header of a safetensors file (huggingface/safetensors): 8 bytes of length, then JSON with type, shape
// and offsets of each tensor, then the tensors' data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Of the length, before the JSON.
inline constexpr uint64_t kSafetensorsLengthBytes = 8;

// A tensor as a header describes it.
struct StoredTensor {
  // As the format names it: "F32", "BF16".
  std::string type;
  std::vector<int64_t> shape;
  // Of its data, behind the header.
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

// Bytes of one element of a type; 0 for one that is not known.
uint64_t ElementBytesOf(absl::string_view type);

// `text` is the JSON; `data_bytes` are behind it in the file.
// Possible errors: INVALID_ARGUMENT (names the tensor whose entry is broken, has other bytes than its shape,
// or points beyond the end).
absl::StatusOr<std::map<std::string, StoredTensor>> ParseSafetensorsHeader(absl::string_view text,
                                                                           uint64_t data_bytes);

// What is where in a file.
struct SafetensorsLayout {
  // Where the data begins.
  uint64_t data_begin = 0;
  // By the tensor's name.
  std::map<std::string, StoredTensor> tensors;
};

// `contents` is the whole file. Possible errors: INVALID_ARGUMENT (no such file, or a truncated one, or as
// above).
absl::StatusOr<SafetensorsLayout> ParseSafetensors(absl::string_view contents);

}  // namespace penstock
