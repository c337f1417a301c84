#include "worker/checkpoint/initial_values.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/safetensors/reader.h"
#include "common/status/status_macros.h"
#include "worker/checkpoint/tensor_bytes.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

namespace fs = std::filesystem;

std::optional<at::ScalarType> TypeOf(absl::string_view name) {
  if (name == "F64") return at::kDouble;
  if (name == "F32") return at::kFloat;
  if (name == "BF16") return at::kBFloat16;
  if (name == "F16") return at::kHalf;
  return std::nullopt;
}

absl::StatusOr<std::vector<SafetensorsReader>> OpenFiles(const std::string& folder) {
  std::set<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "rank-") && absl::EndsWith(name, ".safetensors"))
      paths.insert(entry.path().string());
  }
  if (paths.empty())
    return absl::NotFoundError(absl::StrCat("'", folder, "' has no rank-*.safetensors: it is no checkpoint"));
  std::vector<SafetensorsReader> files;
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::Open(path));
    files.push_back(std::move(file));
  }
  return files;
}

absl::Status Copy(const SafetensorsReader& file, const StoredTensor& stored, const NamedTensor& target) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("'", file.path(), "': tensor '", target.name, "' ", what));
  };
  if (at::IntArrayRef(stored.shape) != target.value.sizes()) {
    return wrong(absl::StrCat("is [", absl::StrJoin(stored.shape, ", "), "], that of the model [",
                              absl::StrJoin(target.value.sizes(), ", "), "]: it is of another model"));
  }
  const std::optional<at::ScalarType> type = TypeOf(stored.type);
  if (!type.has_value()) return wrong(absl::StrCat("is of type ", stored.type, ", which no parameter is"));
  if (*type == target.value.scalar_type()) return ReadTensor(file, stored, 0, target.value);
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor read, CallTorch("initial values", [&] {
                              return at::empty(stored.shape, at::TensorOptions(*type));
                            }));
  PENSTOCK_RETURN_IF_ERROR(ReadTensor(file, stored, 0, read));
  return RunTorch("initial values", [&] {
    const at::NoGradGuard no_gradients;
    target.value.copy_(read);
  });
}

}  // namespace

absl::Status ReadInitialValues(const std::string& folder, const std::vector<NamedTensor>& tensors) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<SafetensorsReader> files, OpenFiles(folder));
  std::map<std::string, const SafetensorsReader*> holders;
  for (const SafetensorsReader& file : files) {
    for (const auto& [name, stored] : file.tensors()) holders.emplace(name, &file);
  }
  for (const NamedTensor& tensor : tensors) {
    const auto holder = holders.find(tensor.name);
    if (holder == holders.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", folder, "' has no tensor '", tensor.name, "': it is of another model"));
    }
    PENSTOCK_RETURN_IF_ERROR(Copy(*holder->second, holder->second->tensors().at(tensor.name), tensor));
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
