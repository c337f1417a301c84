// The tensors of a checkpoint that may lie in several safetensors files: one of Hugging Face, whose files an
// index names, or one of Penstock, with a file for each rank.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/safetensors/reader.h"

namespace penstock::cli {

// Where a tensor is. Both live as long as their set.
struct FoundTensor {
  const SafetensorsReader* file = nullptr;
  const StoredTensor* tensor = nullptr;
};

class TensorSet {
 public:
  // A folder with model.safetensors, or with model.safetensors.index.json and the files that it names.
  // Possible errors: NOT_FOUND (neither is there), INVALID_ARGUMENT (a broken index or file, or a file
  // without the tensor that the index promises), those of SafetensorsReader; all name the file.
  static absl::StatusOr<TensorSet> OpenHuggingFace(const std::string& folder);
  // The rank files of a checkpoint's folder. Possible errors: NOT_FOUND (there are none), as above.
  static absl::StatusOr<TensorSet> OpenRanks(const std::string& folder);

  // By name; of several with one name, which are copies, the first.
  const std::map<std::string, FoundTensor>& tensors() const { return tensors_; }
  const std::string& folder() const { return folder_; }

 private:
  // Adds all tensors of a file.
  absl::Status Add(const std::string& path);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, FoundTensor> tensors_;
};

}  // namespace penstock::cli
