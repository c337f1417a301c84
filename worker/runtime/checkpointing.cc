#include "worker/runtime/checkpointing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/runtime/checkpoint_store.h"

namespace penstock::worker {
namespace {

// How often a rank says that it still tries.
constexpr absl::Duration kSaysSo = absl::Minutes(1);
// How often who waits for the disk looks whether it is to go on with that.
constexpr absl::Duration kLooks = absl::Milliseconds(100);

// What may be better a moment later: a full disk, a share that is gone.
bool MayPass(const absl::Status& failure) {
  return absl::IsResourceExhausted(failure) || absl::IsUnavailable(failure);
}

std::string NameOf(uint64_t next_iteration) {
  return absl::StrCat("the checkpoint after iteration ", next_iteration - 1);
}

}  // namespace

bool Checkpointing::unwritten() const {
  return pending_.has_value() && (writer_.busy() || part_failed_ || parts_.reported() < *pending_);
}

bool Checkpointing::IsLast(uint64_t iteration) const {
  return parts_.job->training.iterations > 0 && iteration + 1 >= parts_.job->training.iterations;
}

bool Checkpointing::IsDue(uint64_t iteration, const Votes& votes) const {
  const uint64_t interval = parts_.job->training.checkpoint_interval;
  return TrainingEndsWith(iteration, votes) || (interval > 0 && (iteration + 1) % interval == 0);
}

absl::Status Checkpointing::AfterIteration(uint64_t iteration, const Votes& votes) {
  if (parts_.directory.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(writer_.status());
  done_ = iteration + 1;
  if (pending_.has_value() && !votes.unwritten) Complete(/*training_goes_on=*/true);
  if (!IsDue(iteration, votes)) return absl::OkStatus();
  const bool training_goes_on = !TrainingEndsWith(iteration, votes);
  if (pending_.has_value()) {
    // Once: the planner holds the iterations of one that was left out, and no more.
    const bool may_be_late = training_goes_on && parts_.goes_on_after_failure && !left_one_out_;
    PENSTOCK_ASSIGN_OR_RETURN(const bool settled, Settle(/*training_goes_on=*/true, may_be_late));
    left_one_out_ = !settled;
    if (!settled) return absl::OkStatus();
  }
  PENSTOCK_RETURN_IF_ERROR(Begin(iteration + 1, training_goes_on));
  return training_goes_on ? absl::OkStatus() : WaitForDisk(parts_.disk_timeout);
}

absl::Status Checkpointing::Begin(uint64_t next_iteration, bool training_goes_on) {
  training_ends_ = !training_goes_on;
  // The part before it has left the memory. Whether that checkpoint is complete, training need not know.
  if (!training_goes_on || !parts_.goes_on_after_failure)
    PENSTOCK_RETURN_IF_ERROR(WaitForDisk(parts_.disk_timeout));
  absl::StatusOr<PartWriter> part = parts_.part(training_goes_on, [this] { return StillWanted(); });
  const absl::Status copied = AnnotateError(part.status(), NameOf(next_iteration));
  const bool failed = absl::IsResourceExhausted(copied) && GivesUp(copied, training_goes_on);
  if (!copied.ok() && !failed) return copied;
  pending_ = next_iteration;
  begun_ = next_iteration;
  part_failed_ = failed;
  if (failed) return absl::OkStatus();
  writer_.Add([this, next_iteration, training_goes_on, write = *std::move(part)]() -> absl::Status {
    const absl::Status status = Try(training_goes_on, [&] { return Write(next_iteration, write); });
    // That it is not wanted any more is no failure of the disk.
    if (!StillWanted().ok() || !GivesUp(status, training_goes_on)) return status;
    part_failed_ = true;
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status Checkpointing::Try(bool training_goes_on, const std::function<absl::Status()>& write) const {
  absl::Status status = write();
  if (training_goes_on || !parts_.goes_on_after_failure) return status;
  const absl::Time end = absl::Now() + parts_.last_is_tried_for;
  for (absl::Time said = absl::InfinitePast(); MayPass(status) && absl::Now() < end; status = write()) {
    if (absl::Now() - said >= kSaysSo) {
      said = absl::Now();
      LogWarning("the checkpoint that training ends with is not written yet; it is tried again",
                 {{"rank", parts_.rank},
                  {"for", absl::FormatDuration(parts_.last_is_tried_for)},
                  {"reason", status.ToString()}});
    }
    absl::SleepFor(parts_.tried_again_after);
  }
  return status;
}

bool Checkpointing::GivesUp(const absl::Status& failure, bool training_goes_on) const {
  if (failure.ok() || !training_goes_on || !parts_.goes_on_after_failure) return false;
  LogWarning("a checkpoint is not written; training goes on, and the next one is tried",
             {{"rank", parts_.rank}, {"reason", failure.ToString()}});
  if (parts_.given_up) parts_.given_up(failure);
  return true;
}

absl::Status Checkpointing::Write(uint64_t next_iteration, const PartWriter& write) const {
  const absl::Time begin = absl::Now();
  const absl::StatusOr<CheckpointPart> part = WritePart(
      parts_.directory, parts_.rank, write, ManifestOf(*parts_.job, next_iteration), *parts_.changes);
  if (!part.ok()) return AnnotateError(part.status(), NameOf(next_iteration));
  if (parts_.part_written) parts_.part_written(part->bytes, absl::Now() - begin);
  return absl::OkStatus();
}

absl::StatusOr<bool> Checkpointing::Settle(bool training_goes_on, bool may_be_late) {
  absl::Status waited = WaitForDisk(may_be_late ? parts_.next_waits_for : parts_.disk_timeout);
  const bool late = may_be_late && absl::IsDeadlineExceeded(waited) && writer_.busy();
  // It has ended just now.
  if (!late && absl::IsDeadlineExceeded(waited) && !writer_.busy()) waited = writer_.status();
  if (!waited.ok() && !late) return waited;
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.flush_reports(), NameOf(*pending_)));
  const absl::StatusOr<bool> any_is_late = parts_.meet(late);
  if (!any_is_late.ok()) return AnnotateError(any_is_late.status(), NameOf(*pending_));
  if (!*any_is_late) {
    Complete(training_goes_on);
    return true;
  }
  if (late) {
    GivesUp(absl::DeadlineExceededError(absl::StrCat(NameOf(done_), " is left out: ", NameOf(*pending_),
                                                     " is still being written after ",
                                                     absl::FormatDuration(parts_.next_waits_for))),
            training_goes_on);
  }
  return false;
}

void Checkpointing::Complete(bool training_goes_on) {
  const uint64_t next_iteration = *pending_;
  pending_.reset();
  if (parts_.rank != 0) return;
  writer_.Add([this, next_iteration, training_goes_on]() -> absl::Status {
    const auto complete = [&] {
      return CompleteCheckpoint(parts_.directory, next_iteration, parts_.kept, *parts_.changes);
    };
    const absl::Status status = AnnotateError(Try(training_goes_on, complete), NameOf(next_iteration));
    if (GivesUp(status, training_goes_on)) {
      // The room that it takes is what the next one needs.
      parts_.changes->Remove(PartialCheckpointPath(parts_.directory, next_iteration)).IgnoreError();
      return absl::OkStatus();
    }
    PENSTOCK_RETURN_IF_ERROR(status);
    LogInfo("checkpoint written", {{"directory", parts_.directory}, {"next_iteration", next_iteration}});
    return absl::OkStatus();
  });
}

absl::Status Checkpointing::StillWanted() const {
  if (training_ends_) return absl::OkStatus();
  if (epoch_has_failed_) return absl::CancelledError("the epoch has failed");
  return parts_.still_wanted ? parts_.still_wanted() : absl::OkStatus();
}

absl::Status Checkpointing::WaitForDisk(absl::Duration most) {
  const absl::Time end = absl::Now() + most;
  for (;;) {
    writer_.Wait(std::min(kLooks, end - absl::Now())).IgnoreError();
    if (!writer_.busy()) return writer_.status();
    PENSTOCK_RETURN_IF_ERROR(StillWanted());
    if (absl::Now() < end) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("the disk has not taken the checkpoint within ", absl::FormatDuration(most)));
  }
}

absl::Status Checkpointing::BeforeStop() {
  if (!pending_.has_value()) return WaitForDisk(parts_.disk_timeout);
  PENSTOCK_RETURN_IF_ERROR(Settle(/*training_goes_on=*/false, /*may_be_late=*/false).status());
  PENSTOCK_RETURN_IF_ERROR(WaitForDisk(parts_.disk_timeout));
  // A rank that leaves ends the epoch, and with it the meeting of a rank 0 that has not heard of the last one
  // yet. That somebody has left meanwhile does no harm.
  parts_.meet(/*says=*/false).IgnoreError();
  return absl::OkStatus();
}

absl::Status Checkpointing::AtEnd() {
  if (parts_.directory.empty() || done_ == 0) return absl::OkStatus();
  // Ranks that are done leave, which may look like a failure of the epoch.
  training_ends_ = true;
  if (begun_ == done_ && IsLast(done_ - 1)) {
    if (pending_.has_value()) Complete(/*training_goes_on=*/false);
    return WaitForDisk(parts_.disk_timeout);
  }
  // A job that was drained: nobody knew which iteration would be its last.
  if (begun_ != done_) {
    if (pending_.has_value())
      PENSTOCK_RETURN_IF_ERROR(Settle(/*training_goes_on=*/true, /*may_be_late=*/false).status());
    PENSTOCK_RETURN_IF_ERROR(Begin(done_, /*training_goes_on=*/false));
  }
  return BeforeStop();
}

}  // namespace penstock::worker
