// What the ranks that are left do when another one is lost, so that as little as possible is done again: each
// writes what it holds, and one of them makes a checkpoint of it (common/checkpoint/rescue.h) before they
// join the next epoch, which then begins where this one ended. Nothing is written where a lost rank had what
// nobody else has (worker/runtime/holder_rings.h).
//
//   const RescueReport report = Rescue({.directory = dir, .rank = 2, .epoch = 3, .job = &job, .holds = 47,
//   ...});
//   ... join the next epoch, from the newest checkpoint ...
//
// A checkpoint is complete only when the planner has the reports of all iterations before it. So where a rank
// died between its last step and its report, there is no rescue: the job goes on from the checkpoint before.
//
// Whoever comes to take the place of the lost rank, or is left and has nothing to write, waits for it:
//
//   PENSTOCK_RETURN_IF_ERROR(AwaitRescue(dir, job_id, wait));
//   ... look for the newest checkpoint ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/files/folder_changes.h"
#include "worker/program/job.h"

namespace penstock::worker {

// A rescue takes no longer, and no longer than the work that it saves; that of little work has the first
// time, which passes anyway until there is a rank in place of the lost one.
inline constexpr absl::Duration kShortestRescue = absl::Seconds(2);
inline constexpr absl::Duration kLongestRescue = absl::Seconds(30);

struct RescueParts {
  // Of the checkpoints.
  std::string directory = {};
  uint32_t rank = 0;
  // That has failed.
  uint64_t epoch = 0;
  const JobConfig* job = nullptr;
  // The iteration that what this rank holds continues with; nothing: an optimizer step had begun, and nobody
  // knows how far it came.
  std::optional<uint64_t> holds = {};
  // The one that the job goes on with without a rescue.
  uint64_t goes_back_to = 0;
  // What iterations of this epoch took in the mean.
  absl::Duration iteration_time = {};
  // What writes this rank's own share and that of the holder behind it; it ends with the error of
  // `still_wanted` when there is one.
  using StillWanted = std::function<absl::Status()>;
  std::function<absl::StatusOr<PartWriter>(StillWanted still_wanted)> part = {};
  // Sends the reports that were held up when the epoch failed; blocks for as long at most.
  std::function<void(absl::Duration)> send_reports = {};
  // The first iteration that some rank has not reported, as the planner knows it. ABORTED: another epoch has
  // begun, and it is not known any more.
  std::function<absl::StatusOr<uint64_t>()> completed = {};
  // Blocks for the time. An error: this process is to end now.
  std::function<absl::Status(absl::Duration)> wait = {};
  // As CheckpointingParts has it.
  size_t kept = kKeptCheckpoints;
  // Of the whole; less where the process must end before.
  absl::Duration longest = kLongestRescue;
  FolderChanges* changes = &RealFolderChanges();
  std::function<absl::Time()> now = absl::Now;
};

enum class RescueEnd : uint8_t {
  // A lost rank takes something along that nobody else has.
  kNotRedundant,
  // The newest checkpoint is as new as what the ranks hold.
  kNothingToSave,
  // An optimizer step had begun on this rank. Others may hold what was before it.
  kNotSound,
  // The planner lacks the report of a rank.
  kNotReported,
  // Parts are missing that nobody has written in time: of ranks that follow each other, or that hold another
  // iteration.
  kIncomplete,
  // An error; `why` says it.
  kFailed,
  // There is a checkpoint of it.
  kComplete,
};

struct RescueReport {
  RescueEnd end = RescueEnd::kNotRedundant;
  absl::Status why = {};
  // Of this rank's part; 0: it has written none.
  uint64_t bytes = 0;
};

// "complete", as metrics and logs name it.
const char* NameOf(RescueEnd end);

// Blocks, for `longest` at most beside what one call of the parts takes. Never fails: the checkpoints from
// before are as they were, or one was added. Says in the log what it has done.
RescueReport Rescue(const RescueParts& parts);

// Blocks while ranks of the job are at a rescue in this folder, for as long as their rescue may take and for
// kLongestRescue at most: a rank that was killed at it holds nobody up for longer. Possible errors: those of
// `wait`.
absl::Status AwaitRescue(const std::string& directory, const std::string& job_id,
                         const std::function<absl::Status(absl::Duration)>& wait,
                         const std::function<absl::Time()>& now = absl::Now);

}  // namespace penstock::worker
