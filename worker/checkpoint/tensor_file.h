// Named tensors in one file, in the safetensors format (huggingface/safetensors: 8 bytes of header length, a
// JSON header with type, shape and offsets of each tensor, then their data).
//
//   PENSTOCK_RETURN_IF_ERROR(WriteTensorFile(path, {{"layers.0.ffn.up.weight", tensor}}));
//   PENSTOCK_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
//   PENSTOCK_RETURN_IF_ERROR(file.Read("layers.0.ffn.up.weight", tensor));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/header.h"

namespace penstock::worker {

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

// The whole file of tensors of float64, float32, bfloat16 and int64, on any device.
// Possible errors: INVALID_ARGUMENT (another type), those of RunTorch.
absl::StatusOr<std::string> SerializeTensors(const std::vector<NamedTensor>& tensors);

// Writes aside, flushes to disk and renames.
// Possible errors: those of WriteFileAtomically and SerializeTensors.
absl::Status WriteTensorFile(const std::string& path, const std::vector<NamedTensor>& tensors);

class TensorFile {
 public:
  // Reads the header. Possible errors: NOT_FOUND, INVALID_ARGUMENT (broken or truncated: names file and
  // cause).
  static absl::StatusOr<TensorFile> Open(const std::string& path);
  // Of a file that was read already; `path` is for messages. Possible errors: INVALID_ARGUMENT.
  static absl::StatusOr<TensorFile> Parse(const std::string& path, std::string contents);

  bool Contains(const std::string& name) const { return layout_.tensors.contains(name); }
  // Copies the tensor `name` into `destination`, which has its type and shape.
  // Possible errors: NOT_FOUND, INVALID_ARGUMENT (another type or shape).
  absl::Status Read(const std::string& name, const at::Tensor& destination) const;

  // By name.
  const std::map<std::string, StoredTensor>& entries() const { return layout_.tensors; }
  // Possible errors: NOT_FOUND, INVALID_ARGUMENT (the tensor `name` has another shape).
  absl::Status CheckShape(const std::string& name, at::IntArrayRef shape) const;
  // Copies elements of the tensor `name`, from `first` on, into `destination`, which has its type and one
  // dimension. Possible errors: NOT_FOUND, INVALID_ARGUMENT (another type, or fewer elements).
  absl::Status ReadElements(const std::string& name, int64_t first, const at::Tensor& destination) const;

 private:
  absl::StatusOr<const StoredTensor*> Find(const std::string& name) const;
  absl::Status WrongTensor(const std::string& name, const StoredTensor& entry) const;

  std::string path_;
  std::string contents_;
  SafetensorsLayout layout_;
};

}  // namespace penstock::worker
