// The folders of checkpoints: which are complete, which is the newest, which go. Knows nothing of what is in
// their files.
//
//   DIR/iteration-40/rank-0 ... rank-3, manifest.json      complete: training can continue with iteration 40
//   DIR/iteration-60.partial/rank-0 ...                    being written, or left behind by a worker that
//   died
//
// A checkpoint is complete when its manifest is there and its folder has its final name; both happen after
// every rank has written its file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/program/job.h"

namespace penstock::worker {

struct CompleteCheckpoint {
  std::string path = {};
  // The iteration that training continues with.
  uint64_t next_iteration = 0;
  // Number of rank files.
  uint32_t ranks = 0;
  // That wrote it.
  std::string job_id = {};
};

// `path` is a checkpoint's folder.
std::string RankFile(const std::string& path, uint32_t rank);

// The complete checkpoint with the highest iteration; nullopt when there is none, or no folder.
// Possible errors: INVALID_ARGUMENT (a broken manifest; names the file), those of ReadFile.
absl::StatusOr<std::optional<CompleteCheckpoint>> FindNewestCheckpoint(const std::string& directory);

// What a job goes on from after a failure: the newest complete checkpoint that it has written itself, or
// `started_from` when there is none. What other jobs have left in the folder does not count.
// Possible errors: those of FindNewestCheckpoint.
absl::StatusOr<std::optional<CompleteCheckpoint>> FindCheckpointOfJob(
    const std::string& directory, const std::string& job_id,
    const std::optional<CompleteCheckpoint>& started_from);

// Makes the folder that the rank files of a checkpoint go to, and returns its path. Any number of ranks may
// call it. Possible errors: UNAVAILABLE (names the folder).
absl::StatusOr<std::string> MakePartialCheckpoint(const std::string& directory, uint64_t next_iteration);

// Makes the partial checkpoint a complete one and removes all older ones but the newest `keep`. For one rank,
// when all have written. Replaces a complete checkpoint of the same iteration. Possible errors: UNAVAILABLE
// (names the folder), those of WriteFileAtomically.
absl::Status CompleteCheckpointFolder(const std::string& directory, uint64_t next_iteration,
                                      const JobConfig& job, size_t keep);

// Removes what earlier workers have left half written. For one rank, before others write.
void RemovePartialCheckpoints(const std::string& directory);

}  // namespace penstock::worker
