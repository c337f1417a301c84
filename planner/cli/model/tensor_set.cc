#include "planner/cli/model/tensor_set.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

absl::Status WrongIndex(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", what));
}

// The file of each tensor, by name.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return WrongIndex(path, "is no index: it has no object \"weight_map\"");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    // Beside the index, and nowhere else.
    if (name.empty() || fs::path(name).filename() != name) {
      return WrongIndex(path, absl::StrCat("weight_map.", tensor, ": ", file.dump(), "; must name a file"));
    }
    files[tensor] = name;
  }
  return files;
}

}  // namespace

absl::Status TensorSet::Add(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
  files_.push_back(std::make_unique<SafetensorsReader>(std::move(reader)));
  for (const auto& [name, tensor] : files_.back()->tensors()) {
    tensors_.emplace(name, FoundTensor{files_.back().get(), &tensor});
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorSet> TensorSet::OpenHuggingFace(const std::string& folder) {
  TensorSet set;
  set.folder_ = folder;
  const std::string index = absl::StrCat(folder, "/", kIndex);
  if (!fs::exists(index)) {
    const absl::Status added = set.Add(absl::StrCat(folder, "/", kOneFile));
    if (!absl::IsNotFound(added)) return added.ok() ? absl::StatusOr<TensorSet>(std::move(set)) : added;
    return absl::NotFoundError(absl::StrCat("'", folder, "' has neither ", kOneFile, " nor ", kIndex,
                                            ": save the model with save_pretrained"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto promised, ReadIndex(index));
  std::set<std::string> files;
  for (const auto& [tensor, file] : promised) files.insert(file);
  for (const std::string& file : files) PENSTOCK_RETURN_IF_ERROR(set.Add(absl::StrCat(folder, "/", file)));
  for (const auto& [tensor, file] : promised) {
    if (set.tensors_.contains(tensor)) continue;
    return WrongIndex(index, absl::StrCat("weight_map.", tensor, ": '", file, "' has no such tensor"));
  }
  return set;
}

absl::StatusOr<TensorSet> TensorSet::OpenRanks(const std::string& folder) {
  TensorSet set;
  set.folder_ = folder;
  std::set<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "rank-") && absl::EndsWith(name, ".safetensors"))
      files.insert(entry.path().string());
  }
  if (files.empty())
    return absl::NotFoundError(absl::StrCat("'", folder, "' has no rank-*.safetensors: it is no checkpoint"));
  for (const std::string& file : files) PENSTOCK_RETURN_IF_ERROR(set.Add(file));
  return set;
}

}  // namespace penstock::cli
