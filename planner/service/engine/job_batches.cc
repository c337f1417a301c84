// Job: from a submitted batch to a stored plan.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/retry_iteration.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/checked_plan.h"
#include "planner/service/engine/job.h"

namespace penstock {
namespace {

// "batch.samples[3]: ..." of the planner becomes "batches[1].samples[3]: ..." of the request.
absl::Status NameBatch(const absl::Status& status, int index) {
  if (status.ok()) return status;
  absl::string_view message = status.message();
  const absl::string_view separator = absl::ConsumePrefix(&message, "batch.") ? "." : ": ";
  return absl::Status(status.code(), absl::StrCat("batches[", index, "]", separator, message));
}

}  // namespace

absl::Status Job::ValidateBatches(const v1::SubmitBatchesRequest& request) const {
  const uint64_t end = spec_.training().iterations();
  for (int i = 0; i < request.batches_size(); ++i) {
    const v1::Batch& batch = request.batches(i);
    if (end > 0 && batch.iteration() >= end) {
      return absl::InvalidArgumentError(absl::StrCat("batches[", i, "].iteration is ", batch.iteration(),
                                                     ", but training.iterations of the job is ", end));
    }
    PENSTOCK_RETURN_IF_ERROR(NameBatch(planner_->ValidateBatch(batch, core::StopToken()), i));
  }
  return absl::OkStatus();
}

absl::Status Job::CheckAcceptsLocked() const {
  if (stopped_) return absl::UnavailableError("the planner stops; try again");
  switch (StateLocked()) {
    case v1::JOB_STATE_FAILED:
      return absl::FailedPreconditionError(
          absl::StrCat("job '", spec_.job_id(), "' failed: ", FailureLocked()));
    case v1::JOB_STATE_FINISHED:
      return absl::FailedPreconditionError(absl::StrCat("job '", spec_.job_id(), "' is finished"));
    case v1::JOB_STATE_DRAINING:
      return absl::FailedPreconditionError(absl::StrCat("job '", spec_.job_id(), "' drains"));
    default:
      return absl::OkStatus();
  }
}

// Stores the batches that are new, with a place in the planning queue for each.
absl::StatusOr<std::vector<BatchPtr>> Job::AdmitLocked(const v1::SubmitBatchesRequest& request,
                                                       const std::vector<std::string>& hashes) {
  PENSTOCK_RETURN_IF_ERROR(CheckAcceptsLocked());
  PENSTOCK_ASSIGN_OR_RETURN(const size_t known, admission_.CountKnown(request.batches(0).iteration(), hashes,
                                                                      progress_.completed() + window_));
  const size_t count = hashes.size() - known;
  if (count > services_.pool->most_of_owner()) {
    return absl::InvalidArgumentError(
        absl::StrCat("batches has ", count, " new batches, but the planning queue holds ",
                     services_.pool->most_of_owner(), " of a job: submit fewer at once"));
  }
  if (!services_.pool->TryReserve(PlanningClass::kJobBatch, spec_.job_id(), count)) {
    return WithRetryIteration(
        absl::ResourceExhaustedError(absl::StrCat("the planning queue is full: retry from iteration ",
                                                  admission_.next_iteration(), " in a moment")),
        admission_.next_iteration());
  }
  std::vector<BatchPtr> batches;
  for (size_t i = known; i < hashes.size(); ++i) {
    batches.push_back(std::make_shared<const v1::Batch>(request.batches(static_cast<int>(i))));
  }
  if (absl::Status status = services_.store->AddBatches(spec_.job_id(), batches); !status.ok()) {
    services_.pool->Release(PlanningClass::kJobBatch, spec_.job_id(), count);
    return AnnotateError(status, "storing the batches");
  }
  for (size_t i = known; i < hashes.size(); ++i) admission_.Accept(hashes[i]);
  return batches;
}

absl::StatusOr<v1::SubmitBatchesResponse> Job::SubmitBatches(const v1::SubmitBatchesRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(ValidateBatches(request));
  std::vector<std::string> hashes;
  for (const v1::Batch& batch : request.batches()) hashes.push_back(ContentHash(batch));
  v1::SubmitBatchesResponse response;
  std::vector<BatchPtr> admitted;
  {
    MutexLock lock(&mutex_);
    PENSTOCK_ASSIGN_OR_RETURN(admitted, AdmitLocked(request, hashes));
    response.set_next_iteration(admission_.next_iteration());
  }
  for (BatchPtr& batch : admitted) {
    services_.pool->Run({PlanningClass::kJobBatch, spec_.job_id(), services_.planning_limit},
                        [self = shared_from_this(), batch = std::move(batch)](const PlanningTicket& ticket) {
                          self->PlanIteration(*batch, ticket);
                        });
  }
  return response;
}

void Job::PlanIteration(const v1::Batch& batch, const PlanningTicket& ticket) {
  // The planner ends: another one plans the batch.
  if (absl::IsUnavailable(ticket.status())) return;
  {
    MutexLock lock(&mutex_);
    if (!planning_failure_.empty()) return;
  }
  absl::StatusOr<v1::Plan> plan = MakeCheckedPlan(*planner_, *services_.checker, batch, ticket.stop(),
                                                  *services_.clock, *services_.observer);
  if (!plan.ok()) plan = ticket.Explain(plan.status());
  if (absl::IsUnavailable(plan.status())) return;
  {
    MutexLock lock(&mutex_);
    if (plan.ok()) {
      KeepPlanLocked(*std::move(plan));
    } else {
      FailPlanningLocked(batch.iteration(), plan.status());
    }
  }
  readers_.WakeAll();
}

void Job::KeepPlanLocked(v1::Plan plan) {
  const uint64_t iteration = plan.iteration();
  const absl::Status stored =
      services_.store->AddPlan(spec_.job_id(), std::make_shared<const v1::Plan>(std::move(plan)));
  if (!stored.ok()) return FailPlanningLocked(iteration, stored);
  planned_.Add(iteration);
}

void Job::FailPlanningLocked(uint64_t iteration, const absl::Status& status) {
  if (!planning_failure_.empty()) return;
  planning_failure_ = absl::StrCat("iteration ", iteration, " cannot be planned: ", status.ToString());
  LogError("job failed", {{"job", spec_.job_id()}, {"reason", planning_failure_}});
}

}  // namespace penstock
