#include "common/checkpoint/rescue.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/errors.h"
#include "common/files/files.h"
#include "common/hash/crc32.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kAnnouncement = ".rescuing";
constexpr absl::string_view kRescueRecord = ".rescue.json";
constexpr absl::string_view kOrdinaryRecord = ".json";

// A safetensors file without tensors: the length of its header (8 bytes, little endian), then the header.
constexpr absl::string_view kEmptyPart("\x08\0\0\0\0\0\0\0{}      ", 16);

std::string FileOf(const std::string& folder, uint32_t rank, absl::string_view suffix) {
  return (fs::path(folder) / absl::StrCat("rank-", rank, suffix)).string();
}

std::string RescuePartPath(const std::string& folder, uint32_t rank) {
  return FileOf(folder, rank, ".rescue.safetensors");
}

std::string RescuedFolder(const std::string& directory, uint64_t next_iteration) {
  return CheckpointPath(directory, next_iteration) + ".rescued.partial";
}

// Of a file of this kind.
std::optional<uint32_t> RankOf(const fs::path& file, absl::string_view suffix) {
  const std::string text = file.filename().string();
  absl::string_view name = text;
  uint32_t rank = 0;
  const bool matches = absl::ConsumePrefix(&name, "rank-") && absl::ConsumeSuffix(&name, suffix) &&
                       absl::SimpleAtoi(name, &rank);
  return matches ? std::optional(rank) : std::nullopt;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

absl::Duration AgeOf(const fs::path& file) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(file, error);
  return error ? absl::InfiniteDuration() : absl::FromChrono(fs::file_time_type::clock::now() - written);
}

// How long it takes at most, in nanoseconds, and whose it is: "2000000000 job-1".
std::string PrintAnnouncement(const std::string& job_id, absl::Duration longest) {
  return absl::StrCat(absl::ToInt64Nanoseconds(longest), " ", job_id);
}

// Of the job, and not out of time.
bool StandsFor(const fs::path& announcement, const std::string& job_id) {
  const std::string text = ReadFile(announcement.string()).value_or("");
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  int64_t longest_ns = 0;
  return absl::SimpleAtoi(parts.first, &longest_ns) && parts.second == job_id &&
         AgeOf(announcement) <= absl::Nanoseconds(longest_ns);
}

bool IsOf(const PartRecord& record, const CheckpointManifest& of) {
  return record.of.job_id == of.job_id && record.of.next_iteration == of.next_iteration &&
         record.of.ranks == of.ranks;
}

std::optional<PartRecord> ReadRecordAt(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<PartRecord> record = ParseRecord(*text);
  return record.ok() ? std::optional(*std::move(record)) : std::nullopt;
}

// Puts the parts into the folder, under the names of a complete checkpoint's.
absl::StatusOr<CheckpointManifest> Gather(const std::string& partial, const std::string& folder,
                                          const CheckpointManifest& of, const RescueRecords& records,
                                          FolderChanges& changes) {
  CheckpointManifest manifest = of;
  for (uint32_t rank = 0; rank < of.ranks; ++rank) {
    const std::string place = PartPath(folder, rank);
    const auto record = records.find(rank);
    if (record == records.end()) {
      PENSTOCK_RETURN_IF_ERROR(changes.Write(place, kEmptyPart));
      manifest.parts.push_back({.bytes = kEmptyPart.size(), .crc32 = Crc32(kEmptyPart)});
      continue;
    }
    const bool rescued = record->second.rescued_from.has_value();
    PENSTOCK_RETURN_IF_ERROR(
        changes.Rename(rescued ? RescuePartPath(partial, rank) : PartPath(partial, rank), place));
    manifest.parts.push_back(record->second.part);
  }
  return manifest;
}

}  // namespace

absl::Status AnnounceRescue(const std::string& directory, uint32_t rank, const CheckpointManifest& of,
                            absl::Duration longest, FolderChanges& changes) {
  const std::string partial = PartialCheckpointPath(directory, of.next_iteration);
  PENSTOCK_RETURN_IF_ERROR(changes.Make(partial));
  return changes.Write(FileOf(partial, rank, kAnnouncement), PrintAnnouncement(of.job_id, longest));
}

void WithdrawRescue(const std::string& directory, uint32_t rank, const CheckpointManifest& of,
                    FolderChanges& changes) {
  const std::string partial = PartialCheckpointPath(directory, of.next_iteration);
  changes.Remove(FileOf(partial, rank, kAnnouncement)).IgnoreError();
}

bool IsRescueAnnounced(const std::string& directory, const std::string& job_id) {
  for (const uint64_t iteration : PartialCheckpoints(directory)) {
    if (Exists(ManifestPath(CheckpointPath(directory, iteration)))) continue;
    std::error_code error;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(PartialCheckpointPath(directory, iteration), error)) {
      if (RankOf(entry.path(), kAnnouncement).has_value() && StandsFor(entry.path(), job_id)) return true;
    }
  }
  return false;
}

absl::StatusOr<CheckpointPart> WriteRescuePart(const std::string& directory, uint32_t rank,
                                               const PartWriter& write, const CheckpointManifest& of,
                                               uint64_t epoch, FolderChanges& changes) {
  const std::string partial = PartialCheckpointPath(directory, of.next_iteration);
  PENSTOCK_RETURN_IF_ERROR(changes.Make(partial));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointPart part, write(RescuePartPath(partial, rank)));
  // Flushes the folder too, and so the name of the part.
  PENSTOCK_RETURN_IF_ERROR(changes.Write(FileOf(partial, rank, kRescueRecord),
                                         PrintRecord({.part = part, .of = of, .rescued_from = epoch})));
  return part;
}

void FindRescueRecords(const std::string& directory, const CheckpointManifest& of, uint64_t epoch,
                       RescueRecords& records) {
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(PartialCheckpointPath(directory, of.next_iteration), error)) {
    const std::optional<uint32_t> of_rescue = RankOf(entry.path(), kRescueRecord);
    const std::optional<uint32_t> rank =
        of_rescue.has_value() ? of_rescue : RankOf(entry.path(), kOrdinaryRecord);
    if (!rank.has_value() || *rank >= of.ranks) continue;
    const auto known = records.find(*rank);
    if (known != records.end() && (known->second.rescued_from.has_value() || !of_rescue.has_value()))
      continue;
    const std::optional<PartRecord> record = ReadRecordAt(entry.path().string());
    if (!record.has_value() || !IsOf(*record, of)) continue;
    const bool is_wanted =
        of_rescue.has_value() ? record->rescued_from == epoch : !record->rescued_from.has_value();
    if (is_wanted) records.insert_or_assign(*rank, *record);
  }
}

absl::StatusOr<bool> CompleteRescue(const std::string& directory, const CheckpointManifest& of,
                                    const RescueRecords& records, size_t keep, FolderChanges& changes) {
  if (Exists(ManifestPath(CheckpointPath(directory, of.next_iteration)))) return false;
  const std::string folder = RescuedFolder(directory, of.next_iteration);
  std::error_code error;
  // Of several processes one makes it.
  const bool made = fs::create_directory(folder, error);
  if (error) return FileError(folder, "making folder", error.value());
  if (!made) return false;
  const std::string partial = PartialCheckpointPath(directory, of.next_iteration);
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointManifest manifest, Gather(partial, folder, of, records, changes));
  PENSTOCK_RETURN_IF_ERROR(PublishCheckpoint(directory, folder, manifest, keep, changes));
  changes.Remove(partial).IgnoreError();
  return true;
}

}  // namespace penstock
