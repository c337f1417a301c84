#include "planner/cli/model/tensor_set.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
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
    const EntryName entry = ParseEntryName(name);
    if (entry.is_whole()) {
      tensors_.emplace(name, FoundTensor{files_.back().get(), &tensor});
    } else {
      parts_[entry.tensor].push_back({name, files_.back().get(), &tensor});
    }
  }
  return absl::OkStatus();
}

absl::Status FoundTensor::Read(uint64_t offset, absl::Span<char> bytes) const {
  if (parts.empty()) return file->Read(*tensor, offset, bytes);
  const auto element = static_cast<int64_t>(ElementBytesOf(tensor->type));
  const int64_t begin = static_cast<int64_t>(offset) / element;
  const int64_t end = begin + static_cast<int64_t>(bytes.size()) / element;
  for (const LocatedBlock& wanted : LocatedBlocksOf(WholeBlock(shape), begin, end, 0)) {
    for (const FoundPart& part : parts) {
      for (const LocatedBlock& stored : part.blocks) {
        const std::optional<Block> both = Intersection(stored.block, wanted.block);
        if (!both.has_value()) continue;
        for (const Run& run : RunsOf(*both, stored, wanted)) {
          const absl::Span<char> place =
              bytes.subspan(static_cast<size_t>(run.to * element), static_cast<size_t>(run.count * element));
          PENSTOCK_RETURN_IF_ERROR(
              part.file->Read(*part.tensor, static_cast<uint64_t>(run.from * element), place));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundTensor> TensorSet::Find(const std::string& name,
                                            const std::vector<int64_t>& shape) const {
  const auto missing = [&] {
    return absl::NotFoundError(absl::StrCat("'", folder_, "' has no tensor '", name, "'"));
  };
  const auto whole = tensors_.find(name);
  if (whole != tensors_.end()) {
    if (whole->second.tensor->shape == shape) return whole->second;
    return missing();
  }
  const auto parts = parts_.find(name);
  if (parts == parts_.end()) return missing();
  FoundTensor found = {parts->second.front().file, parts->second.front().tensor, shape, parts->second};
  std::vector<Block> uncovered = {WholeBlock(shape)};
  for (FoundPart& part : found.parts) {
    if (part.tensor->type != found.tensor->type) {
      return absl::InvalidArgumentError(absl::StrCat("'", folder_, "' has '", part.name, "' of type ",
                                                     part.tensor->type, ", other parts of '", name,
                                                     "' of type ", found.tensor->type));
    }
    auto blocks = StoredBlocks(ParseEntryName(part.name), part.tensor->shape, shape);
    if (!blocks.ok()) return missing();
    part.blocks = *std::move(blocks);
    for (const LocatedBlock& stored : part.blocks) {
      std::vector<Block> left;
      for (const Block& block : uncovered)
        std::ranges::copy(Without(block, stored.block), std::back_inserter(left));
      uncovered = std::move(left);
    }
  }
  if (!uncovered.empty()) return missing();
  return found;
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
