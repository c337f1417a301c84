#include "common/safetensors/header.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Of a tensor: more would not fit into 64 bits with any element.
constexpr uint64_t kMostElements = uint64_t{1} << 56;

std::optional<std::vector<uint64_t>> CountsIn(const nlohmann::json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<uint64_t> counts;
  for (const nlohmann::json& count : *found) {
    if (!count.is_number_unsigned()) return std::nullopt;
    counts.push_back(count.get<uint64_t>());
  }
  return counts;
}

// Nothing where it would be too many.
std::optional<uint64_t> Elements(const std::vector<uint64_t>& shape) {
  uint64_t elements = 1;
  for (const uint64_t extent : shape) {
    if (extent > kMostElements || (extent > 0 && elements > kMostElements / extent)) return std::nullopt;
    elements *= extent;
  }
  return elements;
}

std::optional<StoredTensor> Describe(const nlohmann::json& entry, uint64_t data_bytes) {
  if (!entry.is_object()) return std::nullopt;
  const auto type = entry.find("dtype");
  const auto shape = CountsIn(entry, "shape");
  const auto offsets = CountsIn(entry, "data_offsets");
  if (type == entry.end() || !type->is_string() || !shape || !offsets || offsets->size() != 2)
    return std::nullopt;
  StoredTensor tensor = {
      type->get<std::string>(), {shape->begin(), shape->end()}, (*offsets)[0], (*offsets)[1]};
  if (tensor.begin > tensor.end || tensor.end > data_bytes) return std::nullopt;
  const std::optional<uint64_t> elements = Elements(*shape);
  const uint64_t element_bytes = ElementBytesOf(tensor.type);
  if (!elements || (element_bytes > 0 && *elements * element_bytes != tensor.bytes())) return std::nullopt;
  return tensor;
}

}  // namespace

uint64_t ElementBytesOf(absl::string_view type) {
  if (type == "F64" || type == "I64") return 8;
  if (type == "F32" || type == "I32") return 4;
  if (type == "BF16" || type == "F16") return 2;
  return type == "BOOL" || type == "U8" || type == "I8" ? 1 : 0;
}

absl::StatusOr<std::map<std::string, StoredTensor>> ParseSafetensorsHeader(absl::string_view text,
                                                                           uint64_t data_bytes) {
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the header is broken");
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;  // free text
    std::optional<StoredTensor> tensor = Describe(entry, data_bytes);
    if (!tensor) {
      return absl::InvalidArgumentError(
          absl::StrCat("the entry of tensor '", name, "' is broken, or the file is truncated"));
    }
    tensors[name] = *std::move(tensor);
  }
  return tensors;
}

absl::StatusOr<SafetensorsLayout> ParseSafetensors(absl::string_view contents) {
  uint64_t length = 0;
  if (contents.size() >= kSafetensorsLengthBytes) std::memcpy(&length, contents.data(), sizeof(length));
  if (length == 0 || length > contents.size() - kSafetensorsLengthBytes)
    return absl::InvalidArgumentError("it is no safetensors file, or it is truncated");
  SafetensorsLayout layout = {.data_begin = kSafetensorsLengthBytes + length, .tensors = {}};
  PENSTOCK_ASSIGN_OR_RETURN(layout.tensors,
                            ParseSafetensorsHeader(contents.substr(kSafetensorsLengthBytes, length),
                                                   contents.size() - layout.data_begin));
  return layout;
}

}  // namespace penstock
