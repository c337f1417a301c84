#include "planner/service/engine/job_admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"
#include "penstock/client/retry_iteration.h"
#include "planner/service/engine/job_phase.h"
#include "planner/service/engine/planning_room.h"

namespace penstock {
namespace {

// "batch.samples[3]: ..." of the planner becomes "batches[1].samples[3]: ..." of the request.
absl::Status NameBatch(const absl::Status& status, int index) {
  if (status.ok()) return status;
  absl::string_view message = status.message();
  const absl::string_view separator = absl::ConsumePrefix(&message, "batch.") ? "." : ": ";
  return absl::Status(status.code(), absl::StrCat("batches[", index, "]", separator, message));
}

size_t SamplesOf(const v1::Batch& batch) {
  return static_cast<size_t>(batch.samples_size()) + static_cast<size_t>(batch.validation().samples_size());
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> JobAdmission::ValidateBatches(const v1::SubmitBatchesRequest& request,
                                                                   const BatchPlanner& planner) const {
  const uint64_t end = record_.spec().training().iterations();
  std::vector<int64_t> planning_bytes;
  for (int i = 0; i < request.batches_size(); ++i) {
    const v1::Batch& batch = request.batches(i);
    if (end > 0 && batch.iteration() >= end) {
      return absl::InvalidArgumentError(absl::StrCat("batches[", i, "].iteration is ", batch.iteration(),
                                                     ", but training.iterations of the job is ", end));
    }
    PENSTOCK_RETURN_IF_ERROR(NameBatch(planner.CheckBatch(batch, core::StopToken()), i));
    PENSTOCK_ASSIGN_OR_RETURN(const core::PlanningShape shape, planner.ShapeOf(batch));
    PENSTOCK_RETURN_IF_ERROR(
        CheckRoom(absl::StrCat("batches[", i, "].samples"), shape, record_.services().room));
    planning_bytes.push_back(core::FootprintOf(shape).planning_bytes);
  }
  return planning_bytes;
}

absl::Status JobAdmission::ValidateByAllCosts(const v1::SubmitBatchesRequest& request,
                                              const NewestPlanners& planners, Submitted* submitted) const {
  PENSTOCK_ASSIGN_OR_RETURN(submitted->planning_bytes, ValidateBatches(request, *planners.registered));
  submitted->fit_costs_in_effect =
      planners.in_effect == nullptr || std::ranges::all_of(request.batches(), [&](const v1::Batch& batch) {
        return planners.in_effect->CheckBatch(batch, core::StopToken()).ok();
      });
  return absl::OkStatus();
}

absl::Status JobAdmission::CheckAcceptsLocked() const {
  PENSTOCK_RETURN_IF_ERROR(record_.CheckLiveLocked());
  switch (PhaseLocked(record_, planners_)) {
    case v1::JOB_STATE_FAILED:
      return absl::FailedPreconditionError(
          absl::StrCat("job '", record_.id(), "' failed: ", FailureLocked(record_, planners_)));
    case v1::JOB_STATE_FINISHED:
      return absl::FailedPreconditionError(absl::StrCat("job '", record_.id(), "' is finished"));
    case v1::JOB_STATE_DRAINING:
      return absl::FailedPreconditionError(absl::StrCat("job '", record_.id(), "' drains"));
    default:
      return absl::OkStatus();
  }
}

// For the batches of the request from `known` on. Who is refused may go on from `next` when it has waited.
absl::Status JobAdmission::TakeFromQuotas(const v1::SubmitBatchesRequest& request, size_t known,
                                          uint64_t next) const {
  size_t samples = 0;
  for (int i = static_cast<int>(known); i < request.batches_size(); ++i)
    samples += SamplesOf(request.batches(i));
  absl::Status status = record_.services().quotas->CheckPlanning(record_.payer());
  if (status.ok()) status = record_.services().quotas->TakeSamples(record_.payer(), samples);
  return status.ok() ? status : WithRetryIteration(std::move(status), next);
}

absl::Status JobAdmission::CheckRoomAheadLocked() const {
  const uint64_t completed = record_.state().progress().completed();
  const uint64_t next = record_.state().admission().next_iteration();
  const size_t bytes = record_.values().BatchBytesFrom(completed);
  const size_t most = record_.services().memory->AheadOfOneJob();
  if (next <= completed || bytes < most) return absl::OkStatus();
  return WithRetryIteration(absl::ResourceExhaustedError(absl::StrCat(
                                "batches ahead take ", bytes, " bytes, the limit is ", most,
                                ": retry from iteration ", next, " when ranks have reported more")),
                            next);
}

// To look at a large batch takes milliseconds, and who feeds as fast as it can is refused most of the time:
// what refuses new batches whatever they hold is asked first. Of batches that were seen the content decides.
absl::Status JobAdmission::CheckMayAdmit(const v1::SubmitBatchesRequest& request) const {
  JobLock lock(record_.mutex());
  PENSTOCK_RETURN_IF_ERROR(CheckAcceptsLocked());
  const Admission& admission = record_.state().admission();
  const uint64_t next = admission.next_iteration();
  if (request.batches(0).iteration() != next) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      admission.CheckWindow(next + static_cast<uint64_t>(request.batches_size()) - 1,
                            record_.state().progress().completed() + record_.state().window()));
  PENSTOCK_RETURN_IF_ERROR(CheckRoomAheadLocked());
  absl::Status status = record_.services().quotas->CheckPlanning(record_.payer());
  if (status.ok()) status = record_.services().quotas->CheckSamples(record_.payer());
  return status.ok() ? status : WithRetryIteration(std::move(status), next);
}

// Takes the batches that are new.
absl::Status JobAdmission::AdmitLocked(const v1::SubmitBatchesRequest& request, Submitted submitted) {
  PENSTOCK_RETURN_IF_ERROR(CheckAcceptsLocked());
  const uint64_t completed = record_.state().progress().completed();
  const Admission& admission = record_.state().admission();
  const std::vector<std::string>& hashes = submitted.hashes;
  PENSTOCK_ASSIGN_OR_RETURN(const size_t known, admission.CountKnown(request.batches(0).iteration(), hashes,
                                                                     completed + record_.state().window()));
  if (known == hashes.size()) return absl::OkStatus();
  const uint64_t next = admission.next_iteration();
  PENSTOCK_RETURN_IF_ERROR(CheckRoomAheadLocked());
  PENSTOCK_RETURN_IF_ERROR(TakeFromQuotas(request, known, next));
  if (!submitted.fit_costs_in_effect) costs_.TakeBackLocked();
  JobRecord::StoredBatches stored;
  store::v1::Event event;
  for (size_t i = known; i < hashes.size(); ++i) {
    const v1::Batch& batch = request.batches(static_cast<int>(i));
    stored.emplace_back(batch.iteration(), std::move(submitted.serialized[i]));
    event.mutable_batches_accepted()->add_hashes(hashes[i]);
    record_.values().PutBatch(std::make_shared<const v1::Batch>(batch), submitted.planning_bytes[i]);
    traces_.NoteAcceptedLocked(batch.iteration(), submitted.asked);
    length_drift_.Add(batch);
  }
  const uint64_t end = next + stored.size();
  record_.AppendLocked(std::move(event), std::move(stored), [this, end] { planning_.AddDurable(end); });
  return absl::OkStatus();
}

absl::StatusOr<v1::SubmitBatchesResponse> JobAdmission::Submit(const v1::SubmitBatchesRequest& request) {
  Submitted submitted;
  submitted.asked = record_.TimeOfDay();
  PENSTOCK_RETURN_IF_ERROR(CheckMayAdmit(request));
  NewestPlanners planners;
  {
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(planners_.CheckPreparedLocked());
    planners = planners_.NewestLocked();
  }
  PENSTOCK_RETURN_IF_ERROR(ValidateByAllCosts(request, planners, &submitted));
  // Once, for its hash and for the store, and before the lock is taken.
  for (const v1::Batch& batch : request.batches()) {
    submitted.serialized.push_back(batch.SerializeAsString());
    submitted.hashes.push_back(ContentHash(submitted.serialized.back()));
  }
  while (true) {
    {
      JobLock lock(record_.mutex());
      if (planners == planners_.NewestLocked()) {
        PENSTOCK_RETURN_IF_ERROR(AdmitLocked(request, std::move(submitted)));
        v1::SubmitBatchesResponse response;
        response.set_next_iteration(record_.state().admission().next_iteration());
        return response;
      }
      planners = planners_.NewestLocked();
    }
    // Strategies or costs were changed meanwhile.
    PENSTOCK_RETURN_IF_ERROR(ValidateByAllCosts(request, planners, &submitted));
  }
}

}  // namespace penstock
