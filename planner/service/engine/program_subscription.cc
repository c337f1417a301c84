#include "planner/service/engine/program_subscription.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job.h"
#include "planner/service/engine/program_message.h"

namespace penstock {

std::unique_ptr<ProgramSubscription> Job::Subscribe(const v1::StreamProgramsRequest& request,
                                                    WakeList::Wake wake) {
  return std::make_unique<ProgramSubscription>(shared_from_this(), request, std::move(wake));
}

ProgramSubscription::ProgramSubscription(std::shared_ptr<Job> job, const v1::StreamProgramsRequest& request,
                                         WakeList::Wake wake)
    : job_(std::move(job)),
      request_(request),
      next_iteration_(request.from_iteration()),
      wake_id_(job_->readers_.Add(std::move(wake))) {}

ProgramSubscription::~ProgramSubscription() { job_->readers_.Remove(wake_id_); }

ProgramSubscription::Item ProgramSubscription::Next() {
  Item item = job_->NextProgram(request_, next_iteration_);
  if (std::holds_alternative<v1::StreamProgramsResponse>(item)) ++next_iteration_;
  return item;
}

// A reader without incarnation belongs to no epoch and outlives it.
absl::Status Job::CheckReaderLocked(const v1::StreamProgramsRequest& request) const {
  if (request.rank() >= ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", request.rank(), ", but job '", spec_.job_id(), "' has ", ranks_, " ranks"));
  }
  if (stopped_) return absl::UnavailableError("the planner stops; try again");
  // A worker may have left a finished job while its stream is open.
  if (finished_) return absl::OkStatus();
  if (request.incarnation() != 0 || request.epoch() != 0) {
    PENSTOCK_RETURN_IF_ERROR(membership_.Check({request.rank(), request.incarnation(), request.epoch()}));
    if (membership_.failed()) return absl::FailedPreconditionError(membership_.failure());
  }
  if (!planning_failure_.empty()) return absl::FailedPreconditionError(planning_failure_);
  return absl::OkStatus();
}

ProgramSubscription::Item Job::NextProgram(const v1::StreamProgramsRequest& request, uint64_t iteration) {
  absl::StatusOr<BatchPtr> batch;
  absl::StatusOr<PlanPtr> plan;
  {
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckReaderLocked(request); !status.ok()) return status;
    if (finished_ && iteration >= admission_.next_iteration()) return absl::OkStatus();
    if (iteration < first_held_) {
      return absl::OutOfRangeError(absl::StrCat("from_iteration: iteration ", iteration,
                                                " is no longer held, the first is ", first_held_));
    }
    if (!planned_.Contains(iteration)) {
      // Nothing more will come: a job that was drained may be finished and still find that a batch has no
      // plan.
      if (!planning_failure_.empty()) return absl::FailedPreconditionError(planning_failure_);
      return ProgramSubscription::Pending{};
    }
    batch = services_.store->GetBatch(spec_.job_id(), iteration);
    plan = services_.store->GetPlan(spec_.job_id(), iteration);
    if (batch.ok() && plan.ok() && request.incarnation() != 0) progress_.Sent(request.rank(), iteration);
  }
  if (!batch.ok()) return batch.status();
  if (!plan.ok()) return plan.status();
  return MakeProgramMessage(**batch, **plan, request.rank());
}

}  // namespace penstock
