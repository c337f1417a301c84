// The folders of checkpoints: which are complete, which is sound, which is the newest. Knows nothing of what
// is in their files.
//
//   DIR/iteration-40/rank-0.safetensors ... manifest.json  complete: training can continue with iteration 40
//   DIR/iteration-60.partial/rank-0.safetensors, rank-0.json ...    being written, or left behind
//
// A checkpoint is complete when its manifest is there and its folder has its final name; both happen after
// every rank has written its part. It is sound when its manifest can be read and its parts are as the
// manifest says.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto newest, NewestCheckpoint(dir, CheckpointDepth::kSizes, on_damaged));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_manifest.h"

namespace penstock {

// Complete checkpoints that a job keeps, unless told otherwise.
inline constexpr size_t kKeptCheckpoints = 2;

struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
};

// How closely parts are looked at.
enum class CheckpointDepth : uint8_t {
  // They are there, and as long as they were.
  kSizes,
  // Every byte is read.
  kContents,
};

// `directory`/iteration-N, and the same while it is being written.
std::string CheckpointPath(const std::string& directory, uint64_t next_iteration);
std::string PartialCheckpointPath(const std::string& directory, uint64_t next_iteration);
// In a checkpoint's folder: the part of a rank, its record, the manifest.
std::string PartPath(const std::string& path, uint32_t rank);
std::string RecordPath(const std::string& path, uint32_t rank);
std::string ManifestPath(const std::string& path);

// Iterations of the complete checkpoints, descending. None where there is no such folder. Possible errors:
// those of FileError (it cannot be read, for a moment or for good: what is there is not known).
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(const std::string& directory);

// The same for who loses nothing by not seeing one: none where the folder cannot be read.
std::vector<uint64_t> CompleteCheckpoints(const std::string& directory);

// Possible errors: NOT_FOUND (no such complete checkpoint), DATA_LOSS (it is damaged: names the file), those
// of ReadFile.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& directory, uint64_t next_iteration,
                                          CheckpointDepth depth);

// Reads the part of a rank, piece by piece: it is what was written. Possible errors: those of ReadPart,
// DATA_LOSS (it is not).
absl::Status CheckPart(const Checkpoint& checkpoint, uint32_t rank);

// Told of a checkpoint that is passed over because it is damaged.
using OnDamagedCheckpoint = std::function<void(const std::string& path, const absl::Status& why)>;

// Of the complete checkpoints for which `wanted` is true (none: all; it is asked about what a manifest says,
// before parts are looked at), the newest sound one; nullopt: there is none at all. Possible errors:
// DATA_LOSS (there are some, and each is damaged: names the newest), those of FileError (the folder, or one
// of those that count, cannot be read: it need not be damaged).
absl::StatusOr<std::optional<Checkpoint>> NewestCheckpoint(
    const std::string& directory, CheckpointDepth depth, const OnDamagedCheckpoint& on_damaged,
    const std::function<bool(const Checkpoint&)>& wanted = nullptr);

}  // namespace penstock
