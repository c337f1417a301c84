// A rescue: the checkpoint that the ranks which are left write of what they hold, when others are lost. Each
// writes a part; one of them completes the checkpoint as soon as the parts that are there are all of it,
// which their writers know. The folder work of that; who does it when: worker/runtime/rescue.h.
//
//   DIR/iteration-47.partial/rank-2.rescuing             rank 2 is at it, for how long at most:
//                                                        whoever looks for a checkpoint waits
//   DIR/iteration-47.partial/rank-2.rescue.safetensors   its part
//   DIR/iteration-47.partial/rank-2.rescue.json          the record of it
//   DIR/iteration-47.rescued.partial                     one rank is completing it
//   DIR/iteration-47                                     complete: as any other; a lost rank's part is empty
//
// Parts have names of their own, so that a rescue never meets an ordinary part that is being written; one
// that is there counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_manifest.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/files/folder_changes.h"

namespace penstock {

// Says that the rank begins with its part of a rescue `of`, which it gives up after `longest`; or takes that
// back, because it gives up. Possible errors: those of FolderChanges.
absl::Status AnnounceRescue(const std::string& directory, uint32_t rank, const CheckpointManifest& of,
                            absl::Duration longest, FolderChanges& changes);
void WithdrawRescue(const std::string& directory, uint32_t rank, const CheckpointManifest& of,
                    FolderChanges& changes);

// Whether a rank of the job has announced a rescue that is neither complete nor withdrawn, nor had its time.
// A rank that was killed at it withdraws nothing: of its rescue nothing comes once that time is over.
bool IsRescueAnnounced(const std::string& directory, const std::string& job_id);

// Writes the part of a rank, then its record; `of` has no parts. `epoch`: the one that has failed. Possible
// errors: those of FolderChanges and of the writer.
absl::StatusOr<CheckpointPart> WriteRescuePart(const std::string& directory, uint32_t rank,
                                               const PartWriter& write, const CheckpointManifest& of,
                                               uint64_t epoch, FolderChanges& changes);

// By rank. Of a rank that has both, its part of the rescue.
using RescueRecords = std::map<uint32_t, PartRecord>;

// Adds those that are there by now: of the rescue of that epoch, and ordinary parts of the same checkpoint.
void FindRescueRecords(const std::string& directory, const CheckpointManifest& of, uint64_t epoch,
                       RescueRecords& records);

// Completes the checkpoint of these parts, which are all of it; other ranks get empty ones. Older ones are
// removed as CompleteCheckpoint does. False: another process is doing so, or has; or the checkpoint is there.
// Possible errors: those of FolderChanges; then nobody completes it any more.
absl::StatusOr<bool> CompleteRescue(const std::string& directory, const CheckpointManifest& of,
                                    const RescueRecords& records, size_t keep, FolderChanges& changes);

}  // namespace penstock
