#include "worker/checkpoint/tensor_file.h"

#include <ATen/ops/from_blob.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

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

absl::Status Describe(const NamedTensor& tensor, size_t begin, nlohmann::ordered_json& header) {
  const std::string type = TypeName(tensor.value.scalar_type());
  if (type.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name,
                     "' is of a type that is not written: ", c10::toString(tensor.value.scalar_type())));
  }
  header[tensor.name] = {{"dtype", type},
                         {"shape", tensor.value.sizes().vec()},
                         {"data_offsets", {begin, begin + tensor.value.nbytes()}}};
  return absl::OkStatus();
}

absl::Status Append(const NamedTensor& tensor, std::string& contents) {
  return RunTorch(absl::StrCat("copying '", tensor.name, "'"), [&] {
    const at::Tensor host = tensor.value.detach().to(at::kCPU).contiguous();
    contents.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  });
}

}  // namespace

absl::StatusOr<std::string> SerializeTensors(const std::vector<NamedTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t bytes = 0;
  for (const NamedTensor& tensor : tensors) {
    PENSTOCK_RETURN_IF_ERROR(Describe(tensor, bytes, header));
    bytes += tensor.value.nbytes();
  }
  std::string text = header.dump();
  text.append((kSafetensorsLengthBytes - text.size() % kSafetensorsLengthBytes) % kSafetensorsLengthBytes,
              ' ');  // aligns the data
  const uint64_t length = text.size();
  std::string contents;
  contents.reserve(kSafetensorsLengthBytes + text.size() + bytes);
  contents.append(reinterpret_cast<const char*>(&length), kSafetensorsLengthBytes).append(text);
  for (const NamedTensor& tensor : tensors) PENSTOCK_RETURN_IF_ERROR(Append(tensor, contents));
  return contents;
}

absl::Status WriteTensorFile(const std::string& path, const std::vector<NamedTensor>& tensors) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string contents, SerializeTensors(tensors));
  return WriteFileAtomically(path, contents);
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string contents, ReadFile(path));
  return Parse(path, std::move(contents));
}

absl::StatusOr<TensorFile> TensorFile::Parse(const std::string& path, std::string contents) {
  TensorFile file;
  file.path_ = path;
  file.contents_ = std::move(contents);
  absl::StatusOr<SafetensorsLayout> layout = ParseSafetensors(file.contents_);
  if (!layout.ok()) return AnnotateError(layout.status(), absl::StrCat("'", path, "'"));
  file.layout_ = *std::move(layout);
  return file;
}

absl::StatusOr<const StoredTensor*> TensorFile::Find(const std::string& name) const {
  const auto found = layout_.tensors.find(name);
  if (found != layout_.tensors.end()) return &found->second;
  return absl::NotFoundError(absl::StrCat("'", path_, "' has no tensor '", name, "'"));
}

absl::Status TensorFile::WrongTensor(const std::string& name, const StoredTensor& entry) const {
  return absl::InvalidArgumentError(absl::StrCat("'", path_, "': tensor '", name, "' is ", entry.type, " [",
                                                 absl::StrJoin(entry.shape, ", "),
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
  return RunTorch(absl::StrCat("reading '", name, "'"), [&] {
    char* data = const_cast<char*>(contents_.data() + layout_.data_begin + entry->begin + skipped);
    const at::NoGradGuard no_gradients;
    destination.copy_(at::from_blob(data, destination.sizes(), destination.scalar_type()));
  });
}

}  // namespace penstock::worker
