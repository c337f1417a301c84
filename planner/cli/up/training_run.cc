#include "planner/cli/up/training_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

TrainingRun::TrainingRun(PlannerClient& client, const v1::JobSpec& job, BatchSource& source)
    : client_(client),
      job_(job),
      source_(source),
      next_batch_(job.first_iteration()),
      next_summary_(job.first_iteration()) {}

absl::Status TrainingRun::Feed() {
  while (next_batch_ < job_.training().iterations()) {
    if (!refused_.has_value()) refused_ = source_.Make(next_batch_);
    v1::SubmitBatchesRequest request;
    request.set_job_id(job_.job_id());
    *request.add_batches() = *refused_;
    const absl::Status submitted = client_.SubmitBatches(request).status();
    if (absl::IsResourceExhausted(submitted)) return absl::OkStatus();  // the window is full: later
    PENSTOCK_RETURN_IF_ERROR(submitted);
    refused_.reset();
    ++next_batch_;
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::Step(const std::function<void(const v1::IterationSummary&)>& on_iteration) {
  v1::GetJobRequest request;
  request.set_job_id(job_.job_id());
  request.set_from_iteration(next_summary_);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse response, client_.GetJob(request));
  for (const v1::IterationSummary& iteration : response.iterations()) {
    on_iteration(iteration);
    next_summary_ = iteration.iteration() + 1;
  }
  state_ = response.status().state();
  if (state_ == v1::JOB_STATE_FAILED) return absl::FailedPreconditionError(response.status().failure());
  if (state_ == v1::JOB_STATE_FINISHED) return absl::OkStatus();
  return Feed();
}

}  // namespace penstock::cli
