// The tensors of a checkpoint that may lie in several safetensors files: one of Hugging Face, whose files an
// index names, or one of Penstock, with a file for each rank.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/tensor_blocks.h"
#include "common/safetensors/reader.h"

namespace penstock::cli {

// A part of a tensor, where no rank had it whole.
struct FoundPart {
  // Of the entry.
  std::string name;
  const SafetensorsReader* file = nullptr;
  const StoredTensor* tensor = nullptr;
  std::vector<LocatedBlock> blocks = {};
};

// Where a tensor is. Lives as long as its set.
struct FoundTensor {
  // The tensor, or the first of its parts.
  const SafetensorsReader* file = nullptr;
  const StoredTensor* tensor = nullptr;
  // Of the whole tensor, and its parts; empty: `tensor` is whole.
  std::vector<int64_t> shape = {};
  std::vector<FoundPart> parts = {};

  // Fills `bytes`, whole elements, from the whole tensor's data, from `offset` on. Possible errors: those of
  // SafetensorsReader::Read.
  absl::Status Read(uint64_t offset, absl::Span<char> bytes) const;
};

class TensorSet {
 public:
  // A folder with model.safetensors, or with model.safetensors.index.json and the files that it names.
  // Possible errors: NOT_FOUND (neither is there), INVALID_ARGUMENT (a broken index or file, or a file
  // without the tensor that the index promises), those of SafetensorsReader; all name the file.
  static absl::StatusOr<TensorSet> OpenHuggingFace(const std::string& folder);
  // The rank files of a checkpoint's folder. Possible errors: NOT_FOUND (there are none), as above.
  static absl::StatusOr<TensorSet> OpenRanks(const std::string& folder);

  // Those that are whole, by name; of several with one name, which are copies, the first.
  const std::map<std::string, FoundTensor>& tensors() const { return tensors_; }
  // The tensor of this name and shape, whole or in parts. Possible errors: NOT_FOUND (none of this shape, or
  // a part is missing), INVALID_ARGUMENT (its parts are of several types).
  absl::StatusOr<FoundTensor> Find(const std::string& name, const std::vector<int64_t>& shape) const;
  const std::string& folder() const { return folder_; }

 private:
  // Adds all tensors of a file.
  absl::Status Add(const std::string& path);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, FoundTensor> tensors_;
  // By name of the whole tensor.
  std::map<std::string, std::vector<FoundPart>> parts_;
};

}  // namespace penstock::cli
