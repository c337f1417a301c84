#include "common/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/files/errors.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "iteration-";

absl::Status Damaged(const std::string& path, absl::string_view how) {
  return absl::DataLossError(absl::StrCat("'", path, "' is damaged: ", how));
}

bool IsNotThere(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

absl::Status CheckSize(const Checkpoint& checkpoint, uint32_t rank) {
  const std::string path = PartPath(checkpoint.path, rank);
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (IsNotThere(error)) return Damaged(path, error.message());
  if (error) return FileError(path, "looking at", error.value());
  if (checkpoint.manifest.parts.empty() || size == checkpoint.manifest.parts[rank].bytes)
    return absl::OkStatus();
  return Damaged(path, absl::StrCat("it has ", size, " bytes of ", checkpoint.manifest.parts[rank].bytes));
}

absl::Status CheckParts(const Checkpoint& checkpoint, CheckpointDepth depth) {
  for (uint32_t rank = 0; rank < checkpoint.manifest.ranks; ++rank) {
    PENSTOCK_RETURN_IF_ERROR(CheckSize(checkpoint, rank));
    if (depth == CheckpointDepth::kContents) PENSTOCK_RETURN_IF_ERROR(CheckPart(checkpoint, rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& path, uint64_t next_iteration) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<CheckpointManifest> manifest = ParseManifest(text);
  if (!manifest.ok()) {
    return Damaged(path, absl::StrCat("it is no manifest of a checkpoint: ", manifest.status().message()));
  }
  if (manifest->next_iteration == next_iteration) return manifest;
  return Damaged(path, absl::StrCat("it says \"next_iteration\" ", manifest->next_iteration,
                                    ", its folder is of ", next_iteration));
}

// What its manifest says.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory, uint64_t next_iteration) {
  Checkpoint checkpoint = {.path = CheckpointPath(directory, next_iteration), .manifest = {}};
  PENSTOCK_ASSIGN_OR_RETURN(checkpoint.manifest, ReadManifest(ManifestPath(checkpoint.path), next_iteration));
  return checkpoint;
}

absl::Status CheckThatItIsWhole(const Checkpoint& checkpoint, CheckpointDepth depth) {
  const absl::Status parts = CheckParts(checkpoint, depth);
  if (parts.ok()) return parts;
  // It may have been removed meanwhile, as a whole: a newer one is complete.
  std::error_code unknown;
  if (!fs::exists(ManifestPath(checkpoint.path), unknown) && !unknown) {
    return absl::NotFoundError(absl::StrCat("'", checkpoint.path, "' is not there any more"));
  }
  return parts;
}

}  // namespace

std::string CheckpointPath(const std::string& directory, uint64_t next_iteration) {
  return (fs::path(directory) / absl::StrCat(std::string(kPrefix), next_iteration)).string();
}

std::string PartialCheckpointPath(const std::string& directory, uint64_t next_iteration) {
  return CheckpointPath(directory, next_iteration) + ".partial";
}

std::string PartPath(const std::string& path, uint32_t rank) {
  return (fs::path(path) / absl::StrCat("rank-", rank, ".safetensors")).string();
}

std::string RecordPath(const std::string& path, uint32_t rank) {
  return (fs::path(path) / absl::StrCat("rank-", rank, ".json")).string();
}

std::string ManifestPath(const std::string& path) { return (fs::path(path) / "manifest.json").string(); }

absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(const std::string& directory) {
  std::vector<uint64_t> iterations;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  if (IsNotThere(error)) return iterations;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    uint64_t iteration = 0;
    if (name.rfind(kPrefix, 0) != 0 || !absl::SimpleAtoi(name.substr(kPrefix.size()), &iteration)) continue;
    const std::string manifest = ManifestPath(entry->path().string());
    std::error_code unknown;
    if (fs::exists(manifest, unknown)) iterations.push_back(iteration);
    if (unknown) return FileError(manifest, "looking at", unknown.value());
  }
  if (error) return FileError(directory, "listing folder", error.value());
  std::ranges::sort(iterations, std::ranges::greater());
  return iterations;
}

std::vector<uint64_t> CompleteCheckpoints(const std::string& directory) {
  return ListCheckpoints(directory).value_or(std::vector<uint64_t>());
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& directory, uint64_t next_iteration,
                                          CheckpointDepth depth) {
  PENSTOCK_ASSIGN_OR_RETURN(Checkpoint checkpoint, ReadCheckpoint(directory, next_iteration));
  PENSTOCK_RETURN_IF_ERROR(CheckThatItIsWhole(checkpoint, depth));
  return checkpoint;
}

absl::Status CheckPart(const Checkpoint& checkpoint, uint32_t rank) {
  if (checkpoint.manifest.parts.empty()) return absl::OkStatus();
  const std::string path = PartPath(checkpoint.path, rank);
  PENSTOCK_ASSIGN_OR_RETURN(const CheckpointPart part, ReadPart(path));
  if (part == checkpoint.manifest.parts[rank]) return absl::OkStatus();
  return Damaged(path, absl::StrCat("its ", part.bytes, " bytes are not those that were written"));
}

absl::StatusOr<std::optional<Checkpoint>> NewestCheckpoint(
    const std::string& directory, CheckpointDepth depth, const OnDamagedCheckpoint& on_damaged,
    const std::function<bool(const Checkpoint&)>& wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint64_t> iterations, ListCheckpoints(directory));
  absl::Status damage;
  for (const uint64_t iteration : iterations) {
    absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(directory, iteration);
    if (checkpoint.ok() && wanted && !wanted(*checkpoint)) continue;
    const absl::Status whole = checkpoint.ok() ? CheckThatItIsWhole(*checkpoint, depth) : checkpoint.status();
    if (whole.ok()) return *std::move(checkpoint);
    if (absl::IsNotFound(whole)) continue;
    if (!absl::IsDataLoss(whole)) return whole;
    if (on_damaged) on_damaged(CheckpointPath(directory, iteration), whole);
    damage.Update(whole);
  }
  if (damage.ok()) return std::nullopt;
  return absl::DataLossError(
      absl::StrCat("no checkpoint in '", directory, "' is sound, the newest: ", damage.message()));
}

}  // namespace penstock
