// Named tensors in one file, in the safetensors format (huggingface/safetensors: 8 bytes of header length, a
// JSON header with type, shape and offsets of each tensor, then their data).
//
//   PENSTOCK_RETURN_IF_ERROR(WriteTensorFile(path, {{"layers.0.ffn.up.weight", tensor}}));
//   PENSTOCK_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
//   PENSTOCK_RETURN_IF_ERROR(file.Read("layers.0.ffn.up.weight", tensor));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/safetensors/reader.h"
#include "common/safetensors/writer.h"

namespace penstock::worker {

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

// Tensors of float64, float32, bfloat16 and int64, on any device, one after the other: writes aside, flushes
// to disk and renames. Missing folders are made. Returns what was written. `still_wanted`: asked before each
// tensor; null: it is. Possible errors: INVALID_ARGUMENT (another type), those of SafetensorsWriter,
// RESOURCE_EXHAUSTED, that of `still_wanted`.
absl::StatusOr<CheckpointPart> WriteTensorFile(const std::string& path,
                                               const std::vector<NamedTensor>& tensors,
                                               const std::function<absl::Status()>& still_wanted = nullptr);

// Tensors as they are now, in host memory, to be written while they change.
class TensorCopies {
 public:
  // Possible errors: INVALID_ARGUMENT (another type), RESOURCE_EXHAUSTED (memory).
  static absl::StatusOr<TensorCopies> Of(const std::vector<NamedTensor>& tensors);
  // The same file as WriteTensorFile's. `still_wanted`: asked again and again, however slow the disk is.
  absl::StatusOr<CheckpointPart> Write(const std::string& path,
                                       const std::function<absl::Status()>& still_wanted = nullptr) const;

 private:
  std::vector<TensorToWrite> tensors_;
  // Of each of them.
  std::vector<std::string> bytes_;
};

class TensorFile {
 public:
  // Reads the header; tensors are read from the disk when they are wanted. Possible errors: those of
  // SafetensorsReader::Open.
  static absl::StatusOr<TensorFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  bool Contains(const std::string& name) const { return file_.tensors().contains(name); }
  // Copies the tensor `name` into `destination`, which has its type and shape.
  // Possible errors: NOT_FOUND, INVALID_ARGUMENT (another type or shape).
  absl::Status Read(const std::string& name, const at::Tensor& destination) const;

  // By name.
  const std::map<std::string, StoredTensor>& entries() const { return file_.tensors(); }
  // Copies elements of the tensor `name`, from `first` on, into `destination`, which has its type and one
  // dimension. Possible errors: NOT_FOUND, INVALID_ARGUMENT (another type, or fewer elements).
  absl::Status ReadElements(const std::string& name, int64_t first, const at::Tensor& destination) const;
  // The same from any floating-point type. Possible errors, also: RESOURCE_EXHAUSTED (memory).
  absl::Status ReadConverted(const std::string& name, int64_t first, const at::Tensor& destination) const;

 private:
  absl::Status CheckShape(const std::string& name, at::IntArrayRef shape) const;
  absl::StatusOr<const StoredTensor*> Find(const std::string& name) const;
  absl::Status WrongTensor(const std::string& name, const StoredTensor& entry) const;

  explicit TensorFile(SafetensorsReader file) : file_(std::move(file)) {}

  SafetensorsReader file_;
};

}  // namespace penstock::worker
