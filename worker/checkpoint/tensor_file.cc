#include "worker/checkpoint/tensor_file.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/files/folder_changes.h"
#include "common/status/status_macros.h"
#include "worker/checkpoint/tensor_bytes.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// What is written before somebody asks whether it is still wanted: a second's work of a slow disk.
constexpr size_t kPieceBytes = size_t{64} << 20;

// Names of types in the format; empty for those that are not written.
std::string TypeName(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "F64";
    case at::kFloat:
      return "F32";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    default:
      return "";
  }
}

absl::StatusOr<std::vector<TensorToWrite>> Describe(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorToWrite> described;
  for (const NamedTensor& tensor : tensors) {
    const std::string type = TypeName(tensor.value.scalar_type());
    if (type.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name,
                       "' is of a type that is not written: ", c10::toString(tensor.value.scalar_type())));
    }
    described.push_back({.name = tensor.name, .type = type, .shape = tensor.value.sizes().vec()});
  }
  return described;
}

// Those that values are converted from.
std::optional<at::ScalarType> FloatOf(absl::string_view name) {
  if (name == "F64") return at::kDouble;
  if (name == "F32") return at::kFloat;
  if (name == "BF16") return at::kBFloat16;
  if (name == "F16") return at::kHalf;
  return std::nullopt;
}

// Calls `take` with the tensor's bytes on the host.
absl::Status WithBytesOf(const NamedTensor& tensor,
                         const std::function<absl::Status(absl::string_view bytes)>& take) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor host,
                            CallTorch(absl::StrCat("copying '", tensor.name, "'"),
                                      [&] { return tensor.value.detach().to(at::kCPU).contiguous(); }));
  return take(absl::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
}

absl::StatusOr<SafetensorsWriter> CreateFile(const std::string& path,
                                             const std::vector<TensorToWrite>& tensors) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty()) PENSTOCK_RETURN_IF_ERROR(RealFolderChanges().Make(folder));
  return SafetensorsWriter::Create(path, tensors);
}

absl::StatusOr<CheckpointPart> FinishFile(SafetensorsWriter& file) {
  PENSTOCK_RETURN_IF_ERROR(file.Finish());
  return CheckpointPart{.bytes = file.bytes(), .crc32 = file.crc32()};
}

}  // namespace

absl::StatusOr<CheckpointPart> WriteTensorFile(const std::string& path,
                                               const std::vector<NamedTensor>& tensors,
                                               const std::function<absl::Status()>& still_wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<TensorToWrite> described, Describe(tensors));
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter file, CreateFile(path, described));
  for (const NamedTensor& tensor : tensors) {
    if (still_wanted) PENSTOCK_RETURN_IF_ERROR(still_wanted());
    PENSTOCK_RETURN_IF_ERROR(
        WithBytesOf(tensor, [&](absl::string_view bytes) { return file.Append(bytes); }));
  }
  return FinishFile(file);
}

absl::StatusOr<TensorCopies> TensorCopies::Of(const std::vector<NamedTensor>& tensors) {
  TensorCopies copies;
  PENSTOCK_ASSIGN_OR_RETURN(copies.tensors_, Describe(tensors));
  for (const NamedTensor& tensor : tensors) {
    PENSTOCK_RETURN_IF_ERROR(WithBytesOf(tensor, [&](absl::string_view bytes) {
      return RunTorch(absl::StrCat("copying '", tensor.name, "'"),
                      [&] { copies.bytes_.emplace_back(bytes); });
    }));
  }
  return copies;
}

absl::StatusOr<CheckpointPart> TensorCopies::Write(const std::string& path,
                                                   const std::function<absl::Status()>& still_wanted) const {
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter file, CreateFile(path, tensors_));
  if (!still_wanted) {
    for (const std::string& bytes : bytes_) PENSTOCK_RETURN_IF_ERROR(file.Append(bytes));
    return FinishFile(file);
  }
  uint64_t flushed = file.bytes();
  for (absl::string_view left : bytes_) {
    while (!left.empty()) {
      PENSTOCK_RETURN_IF_ERROR(still_wanted());
      const absl::string_view piece = left.substr(0, kPieceBytes);
      PENSTOCK_RETURN_IF_ERROR(file.Append(piece));
      left.remove_prefix(piece.size());
      // What the system keeps for the disk would otherwise be waited for in the end, and nothing can stop it.
      if (file.bytes() - flushed < kPieceBytes) continue;
      PENSTOCK_RETURN_IF_ERROR(file.Flush());
      flushed = file.bytes();
    }
  }
  PENSTOCK_RETURN_IF_ERROR(still_wanted());
  return FinishFile(file);
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::Open(path));
  return TensorFile(std::move(file));
}

absl::StatusOr<const StoredTensor*> TensorFile::Find(const std::string& name) const {
  const auto found = entries().find(name);
  if (found != entries().end()) return &found->second;
  return absl::NotFoundError(absl::StrCat("'", file_.path(), "' has no tensor '", name, "'"));
}

absl::Status TensorFile::WrongTensor(const std::string& name, const StoredTensor& entry) const {
  return absl::InvalidArgumentError(absl::StrCat("'", file_.path(), "': tensor '", name, "' is ", entry.type,
                                                 " [", absl::StrJoin(entry.shape, ", "),
                                                 "], which is not that of the model"));
}

absl::Status TensorFile::CheckShape(const std::string& name, at::IntArrayRef shape) const {
  PENSTOCK_ASSIGN_OR_RETURN(const StoredTensor* const entry, Find(name));
  return at::IntArrayRef(entry->shape) == shape ? absl::OkStatus() : WrongTensor(name, *entry);
}

absl::Status TensorFile::Read(const std::string& name, const at::Tensor& destination) const {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(name, destination.sizes()));
  return ReadElements(name, 0, destination);
}

absl::Status TensorFile::ReadElements(const std::string& name, int64_t first,
                                      const at::Tensor& destination) const {
  PENSTOCK_ASSIGN_OR_RETURN(const StoredTensor* const entry, Find(name));
  const size_t skipped = static_cast<size_t>(first) * destination.element_size();
  if (entry->type != TypeName(destination.scalar_type()) ||
      skipped + destination.nbytes() > entry->end - entry->begin) {
    return WrongTensor(name, *entry);
  }
  return ReadTensor(file_, *entry, skipped, destination);
}

absl::Status TensorFile::ReadConverted(const std::string& name, int64_t first,
                                       const at::Tensor& destination) const {
  PENSTOCK_ASSIGN_OR_RETURN(const StoredTensor* const entry, Find(name));
  const std::optional<at::ScalarType> type = FloatOf(entry->type);
  if (!type.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("'", file_.path(), "': tensor '", name, "' is of type ",
                                                   entry->type, ", which no parameter is"));
  }
  if (*type == destination.scalar_type()) return ReadElements(name, first, destination);
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor read, CallTorch("reading a tensor", [&] {
                              return at::empty(destination.sizes(), at::TensorOptions(*type));
                            }));
  PENSTOCK_RETURN_IF_ERROR(ReadTensor(file_, *entry, static_cast<size_t>(first) * read.element_size(), read));
  return RunTorch("reading a tensor", [&] {
    const at::NoGradGuard no_gradients;
    destination.copy_(read);
  });
}

}  // namespace penstock::worker
