#include "worker/runtime/checkpointing.h"

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
  if (pending_.has_value()) PENSTOCK_RETURN_IF_ERROR(Settle(/*training_goes_on=*/true));
  const bool training_goes_on = !TrainingEndsWith(iteration, votes);
  PENSTOCK_RETURN_IF_ERROR(Begin(iteration + 1, training_goes_on));
  return training_goes_on ? absl::OkStatus() : WaitForDisk();
}

absl::Status Checkpointing::Begin(uint64_t next_iteration, bool training_goes_on) {
  // The one before it has left the memory.
  PENSTOCK_RETURN_IF_ERROR(WaitForDisk());
  absl::StatusOr<PartWriter> part = parts_.part(training_goes_on);
  if (!part.ok()) return AnnotateError(part.status(), NameOf(next_iteration));
  pending_ = next_iteration;
  begun_ = next_iteration;
  part_failed_ = false;
  writer_.Add([this, next_iteration, training_goes_on, write = *std::move(part)]() -> absl::Status {
    const absl::Status status = Try(training_goes_on, [&] { return Write(next_iteration, write); });
    if (!GivesUp(status, training_goes_on)) return status;
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

absl::Status Checkpointing::Settle(bool training_goes_on) {
  PENSTOCK_RETURN_IF_ERROR(WaitForDisk());
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.flush_reports(), NameOf(*pending_)));
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.meet(), NameOf(*pending_)));
  Complete(training_goes_on);
  return absl::OkStatus();
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

absl::Status Checkpointing::WaitForDisk() { return writer_.Wait(parts_.disk_timeout); }

absl::Status Checkpointing::BeforeStop() {
  if (pending_.has_value()) PENSTOCK_RETURN_IF_ERROR(Settle(/*training_goes_on=*/false));
  return WaitForDisk();
}

absl::Status Checkpointing::AtEnd() {
  if (parts_.directory.empty() || done_ == 0) return absl::OkStatus();
  if (begun_ == done_ && IsLast(done_ - 1)) {
    if (pending_.has_value()) Complete(/*training_goes_on=*/false);
    return WaitForDisk();
  }
  // A job that was drained: nobody knew which iteration would be its last.
  if (begun_ != done_) {
    if (pending_.has_value()) PENSTOCK_RETURN_IF_ERROR(Settle(/*training_goes_on=*/true));
    PENSTOCK_RETURN_IF_ERROR(Begin(done_, /*training_goes_on=*/false));
  }
  return BeforeStop();
}

}  // namespace penstock::worker
