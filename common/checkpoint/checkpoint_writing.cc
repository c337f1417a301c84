#include "common/checkpoint/checkpoint_writing.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";

absl::StatusOr<PartRecord> ReadRecord(const std::string& partial, uint32_t rank) {
  const std::string path = RecordPath(partial, rank);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", partial, "' has no part of rank ", rank, ": it cannot be completed"));
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<PartRecord> record = ParseRecord(*text);
  if (!record.ok()) return AnnotateError(record.status(), absl::StrCat("'", path, "'"));
  return record;
}

bool AreOfOneCheckpoint(const CheckpointManifest& a, const CheckpointManifest& b) {
  return a.job_id == b.job_id && a.next_iteration == b.next_iteration && a.ranks == b.ranks;
}

absl::StatusOr<CheckpointManifest> CollectRecords(const std::string& partial, uint64_t next_iteration) {
  PENSTOCK_ASSIGN_OR_RETURN(const PartRecord first, ReadRecord(partial, 0));
  CheckpointManifest manifest = first.of;
  manifest.next_iteration = next_iteration;
  for (uint32_t rank = 0; rank < first.of.ranks; ++rank) {
    PENSTOCK_ASSIGN_OR_RETURN(const PartRecord record, ReadRecord(partial, rank));
    if (!AreOfOneCheckpoint(record.of, manifest)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "'", RecordPath(partial, rank), "' is of another job or iteration than that of rank 0"));
    }
    manifest.parts.push_back(record.part);
  }
  return manifest;
}

void RemoveOlder(const std::string& directory, uint64_t newest, size_t keep, FolderChanges& changes) {
  if (keep == 0) return;
  size_t sound = 0;
  for (const uint64_t iteration : CompleteCheckpoints(directory)) {
    if (iteration > newest) continue;
    if (sound >= keep) changes.Remove(CheckpointPath(directory, iteration)).IgnoreError();
    if (OpenCheckpoint(directory, iteration, CheckpointDepth::kSizes).ok()) ++sound;
  }
}

}  // namespace

absl::StatusOr<CheckpointPart> WritePart(const std::string& directory, uint32_t rank, const PartWriter& write,
                                         const CheckpointManifest& of, FolderChanges& changes) {
  const std::string partial = PartialCheckpointPath(directory, of.next_iteration);
  PENSTOCK_RETURN_IF_ERROR(changes.Make(partial));
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointPart part, write(PartPath(partial, rank)));
  // Flushes the folder too, and so the name of the part.
  PENSTOCK_RETURN_IF_ERROR(changes.Write(RecordPath(partial, rank), PrintRecord({.part = part, .of = of})));
  return part;
}

absl::Status RecordPart(const std::string& directory, uint32_t rank, const CheckpointManifest& of,
                        FolderChanges& changes) {
  const std::string partial = PartialCheckpointPath(directory, of.next_iteration);
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointPart part, ReadPart(PartPath(partial, rank)));
  return changes.Write(RecordPath(partial, rank), PrintRecord({.part = part, .of = of}));
}

absl::Status PublishCheckpoint(const std::string& directory, const std::string& folder,
                               const CheckpointManifest& manifest, size_t keep, FolderChanges& changes) {
  const std::string complete = CheckpointPath(directory, manifest.next_iteration);
  PENSTOCK_RETURN_IF_ERROR(changes.Write(ManifestPath(folder), PrintManifest(manifest)));
  PENSTOCK_RETURN_IF_ERROR(changes.Sync(folder));
  // Whoever looks for a checkpoint never finds one of which some files are removed already.
  const std::string replaced = complete + ".replaced" + kPartial;
  std::error_code error;
  if (fs::exists(complete, error)) PENSTOCK_RETURN_IF_ERROR(changes.Rename(complete, replaced));
  PENSTOCK_RETURN_IF_ERROR(changes.Rename(folder, complete));
  PENSTOCK_RETURN_IF_ERROR(changes.Sync(directory));
  // What is left behind from here on costs room and nothing else.
  changes.Remove(replaced).IgnoreError();
  for (uint32_t rank = 0; rank < manifest.ranks; ++rank)
    changes.Remove(RecordPath(complete, rank)).IgnoreError();
  RemoveOlder(directory, manifest.next_iteration, keep, changes);
  return absl::OkStatus();
}

absl::Status CompleteCheckpoint(const std::string& directory, uint64_t next_iteration, size_t keep,
                                FolderChanges& changes) {
  const std::string partial = PartialCheckpointPath(directory, next_iteration);
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointManifest manifest, CollectRecords(partial, next_iteration));
  return PublishCheckpoint(directory, partial, manifest, keep, changes);
}

absl::StatusOr<std::string> SetDamagedAside(const std::string& path, FolderChanges& changes) {
  const std::string aside = path + kSetAside;
  absl::Status moved = changes.Rename(path, aside);
  std::error_code error;
  if (!moved.ok() && fs::exists(path, error)) {
    // One of an earlier time is in the way.
    PENSTOCK_RETURN_IF_ERROR(changes.Remove(aside));
    moved = changes.Rename(path, aside);
  }
  // Another process may have been faster.
  if (!moved.ok() && !absl::IsNotFound(moved)) return moved;
  return aside;
}

std::vector<uint64_t> PartialCheckpoints(const std::string& directory) {
  std::vector<uint64_t> iterations;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view number = name;
    uint64_t iteration = 0;
    if (absl::ConsumePrefix(&number, "iteration-") && absl::ConsumeSuffix(&number, kPartial) &&
        absl::SimpleAtoi(number, &iteration)) {
      iterations.push_back(iteration);
    }
  }
  std::ranges::sort(iterations);
  return iterations;
}

void RemovePartialCheckpoints(const std::string& directory, FolderChanges& changes) {
  std::error_code error;
  std::vector<fs::path> partial;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == kPartial) partial.push_back(entry.path());
  }
  for (const fs::path& path : partial) changes.Remove(path.string()).IgnoreError();
}

}  // namespace penstock
