#include "worker/checkpoint/tensor_header.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

// Numbers from 0 to the largest int64.
std::optional<std::vector<int64_t>> Counts(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> counts;
  for (const nlohmann::json& count : *found) {
    if (!count.is_number_unsigned()) return std::nullopt;
    counts.push_back(count.get<int64_t>());
    if (counts.back() < 0) return std::nullopt;
  }
  return counts;
}

// Nothing where a field is missing or of a wrong kind, or the data is not within `data_size` bytes.
std::optional<TensorEntry> Locate(const nlohmann::json& entry, size_t data_size) {
  if (!entry.is_object()) return std::nullopt;
  const auto type = entry.find("dtype");
  auto shape = Counts(entry, "shape");
  const auto offsets = Counts(entry, "data_offsets");
  if (type == entry.end() || !type->is_string() || !shape || !offsets || offsets->size() != 2)
    return std::nullopt;
  const auto begin = static_cast<size_t>((*offsets)[0]);
  const auto end = static_cast<size_t>((*offsets)[1]);
  if (begin > end || end > data_size) return std::nullopt;
  return TensorEntry{type->get<std::string>(), *std::move(shape), begin, end};
}

}  // namespace

absl::StatusOr<TensorHeader> ParseTensorHeader(absl::string_view contents) {
  uint64_t length = 0;
  if (contents.size() >= kTensorHeaderLengthBytes)
    std::memcpy(&length, contents.data(), kTensorHeaderLengthBytes);
  if (length == 0 || length > contents.size() - kTensorHeaderLengthBytes)
    return absl::InvalidArgumentError("it is no safetensors file, or it is truncated");
  TensorHeader header{.data_begin = kTensorHeaderLengthBytes + length, .entries = {}};
  const absl::string_view text = contents.substr(kTensorHeaderLengthBytes, length);
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the header is broken");
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;  // free text, of other writers
    std::optional<TensorEntry> located = Locate(entry, contents.size() - header.data_begin);
    if (!located) {
      return absl::InvalidArgumentError(
          absl::StrCat("the entry of tensor '", name, "' is broken or points beyond the file's end"));
    }
    header.entries[name] = *std::move(located);
  }
  return header;
}

}  // namespace penstock::worker
