// When a rank writes its part of a checkpoint, and when all parts make a complete one. Knows nothing of what
// a part holds.
//
// A part is copied when its iteration is done and written in the background; where training ends with the
// iteration, it is written without a copy, whose memory may not be there. What each rank says once in an
// iteration (worker/runtime/votes.h) tells when all of them are on the disk; then rank 0 completes the
// checkpoint, in the background too. Where it cannot be told in time, because the next checkpoint is due or
// there is no next iteration, the ranks wait for their disks and meet.
//
// With `goes_on_after_failure` training outlives a checkpoint that cannot be written (a full disk): the rank
// says that its part is not there until the next checkpoint is due, for which all ranks meet; then rank 0
// gives the failed one up, and the next one is tried. One with which training ends is never given up: it is
// tried again for minutes, and then its error is that of the training's end. A disk that is slow is waited
// for when the next checkpoint is due, and not for ever: when they meet, the ranks tell each other whether
// all have written, and where one has not, none begins the next checkpoint, and the pending one stays so.
//
// When the epoch has failed, a part that is written while training goes on is given up: nobody can complete
// it. What training ends with is written all the same.
//
//   Checkpointing checkpoints({.directory = dir, .rank = 0, .job = &job, ...});
//   ... an iteration, in which votes().unwritten is checkpoints.unwritten() ...
//   ... report the iteration, unless training ends with it ...
//   PENSTOCK_RETURN_IF_ERROR(checkpoints.AfterIteration(iteration, result.votes));
//   ... report it if training ends with it ...
//   if (result.votes.stop) PENSTOCK_RETURN_IF_ERROR(checkpoints.BeforeStop());
//   ... the job is finished ...
//   PENSTOCK_RETURN_IF_ERROR(checkpoints.AtEnd());
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/files/folder_changes.h"
#include "worker/program/job.h"
#include "worker/runtime/background_writer.h"
#include "worker/runtime/votes.h"

namespace penstock::worker {

struct CheckpointingParts {
  // Empty: no checkpoints are written.
  std::string directory = {};
  uint32_t rank = 0;
  const JobConfig* job = nullptr;
  FolderChanges* changes = &RealFolderChanges();
  // What writes this rank's part as it is now. `training_goes_on`: while what it is made of changes.
  // Otherwise that stays until the part is written. It ends with the error of `still_wanted` when there is
  // one.
  using StillWanted = std::function<absl::Status()>;
  std::function<absl::StatusOr<PartWriter>(bool training_goes_on, StillWanted still_wanted)> part = {};
  // One more than the last iteration whose report, and those of all before it, the planner has.
  std::function<uint64_t()> reported = {};
  // Blocks until the planner has all reports.
  std::function<absl::Status()> flush_reports = {};
  // Blocks until all ranks are here. Whether any of them says so.
  std::function<absl::StatusOr<bool>(bool says)> meet = {};
  // Why the epoch has failed; OK: it has not. Any thread. May be empty: it never does.
  StillWanted still_wanted = {};
  // Called in the background when this rank's part is on the disk. May be empty.
  std::function<void(size_t bytes, absl::Duration took)> part_written = {};
  // The newest complete ones that stay; 0: all.
  size_t kept = kKeptCheckpoints;
  // A checkpoint that cannot be written does not end training.
  bool goes_on_after_failure = false;
  // Called in the background, with the reason, when this rank has given one up. May be empty.
  std::function<void(const absl::Status& why)> given_up = {};
  // How long the disk may take.
  absl::Duration disk_timeout = absl::Minutes(10);
  // With `goes_on_after_failure`: how long it is waited for when the next checkpoint is due, less than ranks
  // wait for each other.
  absl::Duration next_waits_for = absl::Minutes(4);
  // With `goes_on_after_failure`: how long a full disk is waited for at the end of training, less than the
  // above and than ranks wait for each other.
  absl::Duration last_is_tried_for = absl::Minutes(4);
  absl::Duration tried_again_after = absl::Seconds(1);
};

// One thread. Possible errors of all methods: those of the parts and of common/checkpoint, also of what was
// written in the background since; DEADLINE_EXCEEDED (the disk); that of
// `still_wanted`. They name the checkpoint.
class Checkpointing {
 public:
  explicit Checkpointing(CheckpointingParts parts) : parts_(std::move(parts)) {}

  // This rank's part of the last checkpoint is not on the disk, or the planner does not have the reports of
  // the iterations before it: what goes on from a checkpoint leaves no iteration unreported.
  bool unwritten() const;

  // Takes this rank's part where a checkpoint is due: after so many iterations as the job says, after its
  // last one, and where a rank is to stop. In the last two cases the part is on the disk when this returns,
  // before the iteration is reported.
  absl::Status AfterIteration(uint64_t iteration, const Votes& votes);
  // Whether the iteration is one of those two cases.
  bool TrainingEndsWith(uint64_t iteration, const Votes& votes) const {
    return votes.stop || IsLast(iteration);
  }

  // All ranks end here, or may: the checkpoint after the last iteration is complete when this returns, on
  // every rank.
  absl::Status BeforeStop();

  // The job is finished: each rank has reported its last iteration, so its part is there.
  absl::Status AtEnd();

  // Nothing that training goes on behind is written any more. Any thread.
  void EpochHasFailed() { epoch_has_failed_ = true; }

  // Whether the disk still has not taken what was given to it, after this time at the most.
  bool IsWritingAfter(absl::Duration time) {
    writer_.Wait(time).IgnoreError();
    return writer_.busy();
  }

 private:
  bool IsDue(uint64_t iteration, const Votes& votes) const;
  bool IsLast(uint64_t iteration) const;
  absl::Status Begin(uint64_t next_iteration, bool training_goes_on);
  // In the background: again and again where training is to end with what is written.
  absl::Status Try(bool training_goes_on, const std::function<absl::Status()>& write) const;
  absl::Status Write(uint64_t next_iteration, const PartWriter& write) const;
  // Waits until the pending checkpoint is on the disk of every rank, and completes it. False, where it
  // `may_be_late`: the disk of some rank has not taken it in time, and it stays pending on all of them.
  absl::StatusOr<bool> Settle(bool training_goes_on, bool may_be_late);
  // All parts of the pending checkpoint are there, or are not going to be. Rank 0 completes it, in the
  // background; where it cannot, it gives it up if training goes on without.
  void Complete(bool training_goes_on);
  // Whether a failure is no error: then it is said, and counted.
  bool GivesUp(const absl::Status& failure, bool training_goes_on) const;
  // Possible errors: that of StillWanted, DEADLINE_EXCEEDED.
  absl::Status WaitForDisk(absl::Duration most);
  absl::Status StillWanted() const;

  const CheckpointingParts parts_;
  // Of the checkpoint that is not complete, or not known to be: the iteration it continues with.
  std::optional<uint64_t> pending_;
  // One more than the last iteration that was done; 0: none.
  uint64_t done_ = 0;
  // Of the last checkpoint that was begun.
  uint64_t begun_ = 0;
  // The last one that was due was not begun, because the one before it was still being written.
  bool left_one_out_ = false;
  // This rank's part of the pending checkpoint could not be written, and training goes on.
  std::atomic<bool> part_failed_ = false;
  // What is written is what training ends with: it is wanted whatever happens to the epoch.
  std::atomic<bool> training_ends_ = false;
  std::atomic<bool> epoch_has_failed_ = false;
  // Last: its tasks use what is above.
  BackgroundWriter writer_;
};

}  // namespace penstock::worker
