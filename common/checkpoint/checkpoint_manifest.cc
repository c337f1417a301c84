#include "common/checkpoint/checkpoint_manifest.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kFormat = 2;
// Of a job (docs/operations.md).
constexpr uint64_t kMostRanks = 1 << 16;

absl::Status Expected(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what));
}

std::optional<uint64_t> Count(const json& object, const char* key, uint64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto count = found->get<uint64_t>();
  return count <= most ? std::optional(count) : std::nullopt;
}

std::optional<CheckpointPart> ParsePart(const json& object) {
  if (!object.is_object()) return std::nullopt;
  const auto bytes = Count(object, "bytes", std::numeric_limits<uint64_t>::max());
  const auto crc32 = Count(object, "crc32", std::numeric_limits<uint32_t>::max());
  if (!bytes || !crc32) return std::nullopt;
  return CheckpointPart{.bytes = *bytes, .crc32 = static_cast<uint32_t>(*crc32)};
}

ordered_json Print(const CheckpointPart& part) { return {{"bytes", part.bytes}, {"crc32", part.crc32}}; }

ordered_json PrintHead(const CheckpointManifest& manifest) {
  return {
      {"format", kFormat},       {"job", manifest.job_id},        {"next_iteration", manifest.next_iteration},
      {"ranks", manifest.ranks}, {"pipeline", manifest.pipeline}, {"data", manifest.data}};
}

absl::StatusOr<CheckpointManifest> ParseHead(const json& object) {
  if (!object.is_object()) return Expected("an object");
  CheckpointManifest manifest;
  const auto ranks = Count(object, "ranks", kMostRanks);
  if (!ranks || *ranks == 0) return Expected(absl::StrCat("\"ranks\" of 1 to ", kMostRanks));
  manifest.ranks = static_cast<uint32_t>(*ranks);
  const auto next = Count(object, "next_iteration", std::numeric_limits<uint64_t>::max());
  if (!next) return Expected("\"next_iteration\", a number");
  manifest.next_iteration = *next;
  manifest.pipeline = static_cast<uint32_t>(Count(object, "pipeline", *ranks).value_or(0));
  manifest.data = static_cast<uint32_t>(Count(object, "data", *ranks).value_or(0));
  if (object.contains("job") && object["job"].is_string()) manifest.job_id = object["job"];
  return manifest;
}

json Parse(absl::string_view text) {
  return json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::string PrintManifest(const CheckpointManifest& manifest) {
  ordered_json json = PrintHead(manifest);
  ordered_json& parts = json["parts"] = ordered_json::array();
  for (const CheckpointPart& part : manifest.parts) parts.push_back(Print(part));
  return json.dump(2) + "\n";
}

absl::StatusOr<CheckpointManifest> ParseManifest(absl::string_view text) {
  const json object = Parse(text);
  PENSTOCK_ASSIGN_OR_RETURN(CheckpointManifest manifest, ParseHead(object));
  if (Count(object, "format", kFormat).value_or(kFormat) < kFormat) return manifest;
  const auto parts = object.find("parts");
  if (parts == object.end() || !parts->is_array() || parts->size() != manifest.ranks)
    return Expected(absl::StrCat("\"parts\", one for each of ", manifest.ranks, " ranks"));
  for (const json& entry : *parts) {
    const std::optional<CheckpointPart> part = ParsePart(entry);
    if (!part) return Expected("\"bytes\" and \"crc32\" of each part");
    manifest.parts.push_back(*part);
  }
  return manifest;
}

std::string PrintRecord(const PartRecord& record) {
  ordered_json json = PrintHead(record.of);
  json["part"] = Print(record.part);
  if (record.rescued_from.has_value()) json["rescued_from_epoch"] = *record.rescued_from;
  return json.dump(2) + "\n";
}

absl::StatusOr<PartRecord> ParseRecord(absl::string_view text) {
  const json object = Parse(text);
  PENSTOCK_ASSIGN_OR_RETURN(CheckpointManifest of, ParseHead(object));
  const std::optional<CheckpointPart> part = ParsePart(object.value("part", json()));
  if (!part) return Expected("\"part\" with \"bytes\" and \"crc32\"");
  return PartRecord{
      .part = *part,
      .of = std::move(of),
      .rescued_from = Count(object, "rescued_from_epoch", std::numeric_limits<uint64_t>::max())};
}

}  // namespace penstock
