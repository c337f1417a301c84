#include "planner/service/engine/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr uint32_t kDefaultWindow = 16;
constexpr uint32_t kDefaultHeartbeatTimeoutMs = 5000;
constexpr uint64_t kMinHistory = 64;
constexpr uint64_t kMaxHistory = 1024;

uint32_t OrDefault(uint32_t value, uint32_t fallback) { return value == 0 ? fallback : value; }

}  // namespace

Job::Job(v1::JobSpec spec, std::unique_ptr<BatchPlanner> planner, const JobServices& services)
    : spec_(std::move(spec)),
      serialized_spec_(spec_.SerializeAsString()),
      planner_(std::move(planner)),
      services_(services),
      ranks_(spec_.mesh().pipeline() * spec_.mesh().data()),
      window_(OrDefault(spec_.look_ahead_window(), kDefaultWindow)),
      history_(std::clamp(spec_.training().checkpoint_interval(), kMinHistory, kMaxHistory)),
      admission_(spec_.first_iteration()),
      planned_(spec_.first_iteration()),
      progress_(ranks_, spec_.first_iteration()),
      membership_(ranks_,
                  absl::Milliseconds(OrDefault(spec_.heartbeat_timeout_ms(), kDefaultHeartbeatTimeoutMs))),
      first_held_(spec_.first_iteration()) {
  MutexLock lock(&mutex_);
  FinishIfDoneLocked();
}

// Compared as bytes: a profile may hold NaN, which is never equal to itself.
bool Job::HasSpec(const v1::JobSpec& spec) const { return spec.SerializeAsString() == serialized_spec_; }

v1::JobState Job::State() const {
  MutexLock lock(&mutex_);
  return StateLocked();
}

bool Job::IsOver() const {
  MutexLock lock(&mutex_);
  return finished_ || !planning_failure_.empty();
}

v1::JobState Job::StateLocked() const {
  if (finished_) return v1::JOB_STATE_FINISHED;
  if (!FailureLocked().empty()) return v1::JOB_STATE_FAILED;
  if (draining_) return v1::JOB_STATE_DRAINING;
  return membership_.ready() ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_REGISTERED;
}

std::string Job::FailureLocked() const {
  return planning_failure_.empty() ? membership_.failure() : planning_failure_;
}

v1::JobStatus Job::Status() const {
  MutexLock lock(&mutex_);
  return StatusLocked();
}

v1::JobStatus Job::StatusLocked() const {
  v1::JobStatus status;
  status.set_job_id(spec_.job_id());
  status.set_state(StateLocked());
  if (!finished_) status.set_failure(FailureLocked());
  status.set_epoch(membership_.epoch());
  status.set_next_iteration(admission_.next_iteration());
  status.set_planned_iteration(planned_.next());
  status.set_completed_iteration(progress_.completed());
  for (v1::WorkerStatus& worker : membership_.Workers(services_.clock->Now())) {
    worker.set_last_iteration(progress_.last_reported(worker.rank()));
    *status.add_workers() = std::move(worker);
  }
  return status;
}

v1::GetJobResponse Job::Get(uint64_t from_iteration) const {
  MutexLock lock(&mutex_);
  v1::GetJobResponse response;
  *response.mutable_status() = StatusLocked();
  *response.mutable_job() = spec_;
  for (const v1::IterationSummary& summary : summaries_) {
    if (summary.iteration() >= from_iteration) *response.add_iterations() = summary;
  }
  return response;
}

std::optional<v1::IterationSummary> Job::LastSummary() const {
  MutexLock lock(&mutex_);
  if (summaries_.empty()) return std::nullopt;
  return summaries_.back();
}

absl::StatusOr<v1::GetIterationResponse> Job::GetIteration(uint64_t iteration) const {
  MutexLock lock(&mutex_);
  if (iteration < first_held_ || !planned_.Contains(iteration)) {
    return absl::OutOfRangeError(absl::StrCat("iteration: ", iteration,
                                              " is not held; planned iterations from ", first_held_,
                                              " to before ", planned_.next(), " are"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const BatchPtr batch, services_.store->GetBatch(spec_.job_id(), iteration));
  PENSTOCK_ASSIGN_OR_RETURN(const PlanPtr plan, services_.store->GetPlan(spec_.job_id(), iteration));
  PENSTOCK_ASSIGN_OR_RETURN(const auto reports, services_.store->GetReports(spec_.job_id(), iteration));
  v1::GetIterationResponse response;
  *response.mutable_batch() = *batch;
  *response.mutable_plan() = *plan;
  for (const v1::ReportIterationRequest& report : reports) *response.add_reports() = report;
  return response;
}

absl::StatusOr<v1::JobState> Job::Drain() {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  {
    MutexLock lock(&mutex_);
    if (StateLocked() == v1::JOB_STATE_FAILED) {
      return absl::FailedPreconditionError(
          absl::StrCat("job '", spec_.job_id(), "' failed: ", FailureLocked()));
    }
    draining_ = true;
    FinishIfDoneLocked();
    state = StateLocked();
  }
  readers_.WakeAll();
  return state;
}

void Job::FinishIfDoneLocked() {
  const uint64_t total = spec_.training().iterations();
  const uint64_t completed = progress_.completed();
  const bool all_done = total > 0 && completed >= total;
  const bool drained = draining_ && (membership_.empty() || completed >= admission_.next_iteration());
  if (finished_ || !(all_done || drained)) return;
  finished_ = true;
  LogInfo("job finished", {{"job", spec_.job_id()}, {"iterations", completed}});
}

void Job::Tick() {
  {
    MutexLock lock(&mutex_);
    if (finished_ || !planning_failure_.empty() || !membership_.Expire(services_.clock->Now())) return;
    LogEpochLocked();
  }
  readers_.WakeAll();
}

void Job::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  readers_.WakeAll();
}

}  // namespace penstock
