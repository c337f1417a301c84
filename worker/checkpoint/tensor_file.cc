#include "worker/checkpoint/tensor_file.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

constexpr size_t kLengthBytes = 8;

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

absl::Status Append(const NamedTensor& tensor, nlohmann::ordered_json& header, std::string& data) {
  const std::string type = TypeName(tensor.value.scalar_type());
  if (type.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name,
                     "' is of a type that is not written: ", c10::toString(tensor.value.scalar_type())));
  }
  return RunTorch(absl::StrCat("copying '", tensor.name, "'"), [&] {
    const at::Tensor host = tensor.value.detach().to(at::kCPU).contiguous();
    const size_t begin = data.size();
    data.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
    header[tensor.name] = {
        {"dtype", type}, {"shape", host.sizes().vec()}, {"data_offsets", {begin, data.size()}}};
  });
}

// What the header says of one tensor.
struct Located {
  std::string type;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
};

std::optional<std::vector<int64_t>> Counts(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> counts;
  for (const nlohmann::json& count : *found) {
    if (!count.is_number_unsigned()) return std::nullopt;
    counts.push_back(count.get<int64_t>());
  }
  return counts;
}

// Nothing where a field is missing or of a wrong kind, or the data is not within `data_size` bytes.
std::optional<Located> Locate(const nlohmann::json& entry, size_t data_size) {
  if (!entry.is_object()) return std::nullopt;
  const auto type = entry.find("dtype");
  auto shape = Counts(entry, "shape");
  auto offsets = Counts(entry, "data_offsets");
  if (type == entry.end() || !type->is_string() || !shape || !offsets || offsets->size() != 2)
    return std::nullopt;
  const int64_t begin = (*offsets)[0];
  const int64_t end = (*offsets)[1];
  if (begin < 0 || begin > end || end > static_cast<int64_t>(data_size)) return std::nullopt;
  return Located{type->get<std::string>(), *std::move(shape), *std::move(offsets)};
}

}  // namespace

absl::Status WriteTensorFile(const std::string& path, const std::vector<NamedTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const NamedTensor& tensor : tensors) PENSTOCK_RETURN_IF_ERROR(Append(tensor, header, data));
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');  // aligns the data
  const uint64_t length = text.size();
  std::string contents(reinterpret_cast<const char*>(&length), kLengthBytes);
  return WriteFileAtomically(path, contents + text + data);
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path) {
  TensorFile file;
  file.path_ = path;
  PENSTOCK_ASSIGN_OR_RETURN(file.contents_, ReadFile(path));
  uint64_t length = 0;
  if (file.contents_.size() >= kLengthBytes) std::memcpy(&length, file.contents_.data(), kLengthBytes);
  if (length == 0 || length > file.contents_.size() - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is no safetensors file, or it is truncated"));
  }
  file.data_begin_ = kLengthBytes + length;
  const auto header = nlohmann::json::parse(file.contents_.substr(kLengthBytes, length), nullptr, false);
  if (!header.is_object())
    return absl::InvalidArgumentError(absl::StrCat("'", path, "': the header is broken"));
  const size_t data_size = file.contents_.size() - file.data_begin_;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;  // free text, of other writers
    std::optional<Located> located = Locate(entry, data_size);
    if (!located) {
      return absl::InvalidArgumentError(absl::StrCat("'", path, "': the entry of tensor '", name,
                                                     "' is broken or points beyond the file's end"));
    }
    file.entries_[name] = {std::move(located->type), std::move(located->shape),
                           static_cast<size_t>(located->offsets[0]),
                           static_cast<size_t>(located->offsets[1])};
  }
  return file;
}

absl::Status TensorFile::Read(const std::string& name, const at::Tensor& destination) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    return absl::NotFoundError(absl::StrCat("'", path_, "' has no tensor '", name, "'"));
  const Entry& entry = found->second;
  if (entry.type != TypeName(destination.scalar_type()) ||
      at::IntArrayRef(entry.shape) != destination.sizes() ||
      entry.end - entry.begin != destination.nbytes()) {
    return absl::InvalidArgumentError(absl::StrCat("'", path_, "': tensor '", name, "' is ", entry.type, " [",
                                                   absl::StrJoin(entry.shape, ", "),
                                                   "], which is not that of the model"));
  }
  return RunTorch(absl::StrCat("reading '", name, "'"), [&] {
    char* data = const_cast<char*>(contents_.data() + data_begin_ + entry.begin);
    const at::NoGradGuard no_gradients;
    destination.copy_(at::from_blob(data, destination.sizes(), destination.scalar_type()));
  });
}

}  // namespace penstock::worker
