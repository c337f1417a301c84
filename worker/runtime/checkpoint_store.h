// Which checkpoint a worker goes on from. What checkpoints are, and when one is complete or damaged:
// common/checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/folder_changes.h"
#include "worker/program/job.h"

namespace penstock::worker {

// The complete checkpoint with the highest iteration that is not damaged as far as can be seen without
// reading its parts; each one that is passed over is logged. nullopt: there is none, or no folder. Possible
// errors: those of NewestCheckpoint; UNAVAILABLE says that it may be found out later.
absl::StatusOr<std::optional<Checkpoint>> FindNewestCheckpoint(const std::string& directory);

// What a job goes on from after a failure: the newest such checkpoint that it has written itself, or
// `started_from` when there is none, or what was before that where it has turned out to be damaged; nullopt:
// it began at the beginning, and has written none. What other jobs have left in the folder does not count
// otherwise. Possible errors: those of FindNewestCheckpoint; so DATA_LOSS where all that it could go on from
// is damaged.
absl::StatusOr<std::optional<Checkpoint>> FindCheckpointOfJob(const std::string& directory,
                                                              const std::string& job_id,
                                                              const std::optional<Checkpoint>& started_from);

// A part turned out to be damaged while it was read: sets the checkpoint aside (common/checkpoint) and
// returns UNAVAILABLE, which says so and ends the epoch, so that all ranks look again.
absl::Status PassOverDamaged(const Checkpoint& checkpoint, const absl::Status& why, FolderChanges& changes);

// Ranks whose parts hold what this rank needs, the likely ones first: those of its own place in the pipeline.
std::vector<uint32_t> ReadingOrder(const CheckpointManifest& manifest, uint32_t rank);

// Of a checkpoint of the job, without parts.
CheckpointManifest ManifestOf(const JobConfig& job, uint64_t next_iteration);

}  // namespace penstock::worker
