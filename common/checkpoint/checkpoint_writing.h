// How a checkpoint comes to be: every rank writes its part, then one process completes it.
//
//   PENSTOCK_RETURN_IF_ERROR(WritePart(dir, rank, writer, of, RealFolderChanges()));   // on every rank
//   ... all ranks have done so ...
//   PENSTOCK_RETURN_IF_ERROR(CompleteCheckpoint(dir, next_iteration, /*keep=*/2, RealFolderChanges()));
//
// Each step is on the disk before the next one: after a power failure at any moment the newest complete
// checkpoint is sound, or the one before it is still there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_manifest.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/files/folder_changes.h"

namespace penstock {

// Writes the part of a rank and its record into the partial checkpoint `of.next_iteration`, whose folder is
// made; `of` has no parts. Returns what was written. Possible errors: those of FolderChanges and of the
// writer.
absl::StatusOr<CheckpointPart> WritePart(const std::string& directory, uint32_t rank, const PartWriter& write,
                                         const CheckpointManifest& of, FolderChanges& changes);

// Leaves the record of a part that is at its place already, written by other means. Possible errors: those of
// ReadPart and of FolderChanges.
absl::Status RecordPart(const std::string& directory, uint32_t rank, const CheckpointManifest& of,
                        FolderChanges& changes);

// Makes the partial checkpoint a complete one, then removes those before it but the newest sound ones, so
// that `keep` are left with it (0: all stay); later ones, which another run has left, stay. Replaces a
// complete checkpoint of the same iteration. For one process at a time. Possible errors: FAILED_PRECONDITION
// (the part of a rank is missing: names it; or parts are of several jobs), those of FolderChanges.
absl::Status CompleteCheckpoint(const std::string& directory, uint64_t next_iteration, size_t keep,
                                FolderChanges& changes);

// The same of a folder in `directory` that has the parts of the manifest under their names, flushed.
absl::Status PublishCheckpoint(const std::string& directory, const std::string& folder,
                               const CheckpointManifest& manifest, size_t keep, FolderChanges& changes);

// What the name of a checkpoint that was set aside ends with.
inline constexpr const char* kSetAside = ".damaged";

// Takes a damaged checkpoint out of the way of whoever looks for one, and keeps it as "iteration-N.damaged",
// whose path it returns. Several processes may do so at a time. Possible errors: those of FolderChanges.
absl::StatusOr<std::string> SetDamagedAside(const std::string& path, FolderChanges& changes);

// Iterations of the partial checkpoints of the folder, ascending.
std::vector<uint64_t> PartialCheckpoints(const std::string& directory);

// Removes what was left half written. For one process, before others write.
void RemovePartialCheckpoints(const std::string& directory, FolderChanges& changes);

}  // namespace penstock
