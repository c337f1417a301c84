#include "worker/runtime/checkpoint_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

void LogDamage(const std::string& path, const absl::Status& why) {
  LogWarning("a checkpoint is damaged; looking for the one before it",
             {{"checkpoint", path}, {"reason", std::string(why.message())}});
}

// Possible errors: it cannot be looked at now.
absl::StatusOr<bool> IsStillSound(const std::string& directory, const Checkpoint& checkpoint) {
  const absl::Status status =
      OpenCheckpoint(directory, checkpoint.manifest.next_iteration, CheckpointDepth::kSizes).status();
  if (absl::IsDataLoss(status) || absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

// What was before the checkpoint that the job began with, which is damaged.
absl::StatusOr<std::optional<Checkpoint>> FindBefore(const std::string& directory,
                                                     const Checkpoint& damaged) {
  const uint64_t began = damaged.manifest.next_iteration;
  PENSTOCK_ASSIGN_OR_RETURN(
      std::optional<Checkpoint> before,
      NewestCheckpoint(directory, CheckpointDepth::kSizes, LogDamage, [&](const Checkpoint& checkpoint) {
        return checkpoint.manifest.next_iteration < began;
      }));
  if (before.has_value()) return before;
  return absl::DataLossError(
      absl::StrCat("'", damaged.path, "' is damaged or gone, and no checkpoint before it is there"));
}

}  // namespace

absl::StatusOr<std::optional<Checkpoint>> FindNewestCheckpoint(const std::string& directory) {
  return NewestCheckpoint(directory, CheckpointDepth::kSizes, LogDamage);
}

absl::StatusOr<std::optional<Checkpoint>> FindCheckpointOfJob(const std::string& directory,
                                                              const std::string& job_id,
                                                              const std::optional<Checkpoint>& started_from) {
  absl::StatusOr<std::optional<Checkpoint>> own =
      NewestCheckpoint(directory, CheckpointDepth::kSizes, LogDamage,
                       [&](const Checkpoint& checkpoint) { return checkpoint.manifest.job_id == job_id; });
  if (own.ok() && own->has_value()) return own;
  if (!own.ok() && !absl::IsDataLoss(own.status())) return own;
  // Where all of its own are damaged, nothing is begun anew.
  if (!started_from.has_value()) return own;
  PENSTOCK_ASSIGN_OR_RETURN(const bool sound, IsStillSound(directory, *started_from));
  if (sound) return started_from;
  return FindBefore(directory, *started_from);
}

absl::Status PassOverDamaged(const Checkpoint& checkpoint, const absl::Status& why, FolderChanges& changes) {
  LogError("a checkpoint is damaged and set aside",
           {{"checkpoint", checkpoint.path}, {"reason", std::string(why.message())}});
  PENSTOCK_ASSIGN_OR_RETURN(const std::string aside, SetDamagedAside(checkpoint.path, changes));
  return absl::UnavailableError(absl::StrCat(why.message(), "; it is kept as '", aside,
                                             "', and training goes on from the checkpoint before it"));
}

std::vector<uint32_t> ReadingOrder(const CheckpointManifest& manifest, uint32_t rank) {
  std::vector<uint32_t> order(manifest.ranks);
  for (uint32_t i = 0; i < manifest.ranks; ++i) order[i] = (rank + i) % manifest.ranks;
  const uint32_t stages = manifest.pipeline * manifest.data;
  if (stages == 0) return order;
  const uint32_t group = std::max(uint32_t{1}, manifest.ranks / stages);
  const auto position = [&](uint32_t of) { return of / group % manifest.pipeline; };
  std::stable_partition(order.begin(), order.end(),
                        [&](uint32_t other) { return position(other) == position(rank); });
  return order;
}

CheckpointManifest ManifestOf(const JobConfig& job, uint64_t next_iteration) {
  return {.job_id = job.job_id,
          .next_iteration = next_iteration,
          .ranks = job.world_size(),
          .pipeline = job.pipeline,
          .data = job.replicas};
}

}  // namespace penstock::worker
