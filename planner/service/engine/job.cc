#include "planner/service/engine/job.h"

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job_phase.h"
#include "planner/service/state/job_status.h"

namespace penstock {

Job::Job(uint64_t key, JobState state, uint64_t events, const JobServices& services)
    : record_(key, std::move(state), events, services),
      planners_(record_),
      readers_(record_),
      workers_(record_, planners_, readers_),
      traces_(record_),
      planning_(record_, planners_, readers_, workers_, traces_),
      preparation_(record_, planners_, readers_, planning_),
      delivery_(record_, planners_, readers_, planning_),
      costs_(record_, planners_, planning_),
      admission_(record_, planners_, planning_, costs_, traces_),
      strategies_(record_, planners_, readers_, planning_, admission_),
      diagnoses_(record_),
      reports_(record_, readers_, planning_, costs_, diagnoses_, traces_),
      iterations_(record_, planning_) {}

std::shared_ptr<Job> Job::Register(uint64_t key, const v1::JobSpec& spec, const JobServices& services) {
  store::v1::Event event;
  event.set_unix_ns(absl::ToUnixNanos(services.clock->TimeOfDay()));
  *event.mutable_job_registered()->mutable_spec() = spec;
  std::shared_ptr<Job> job(new Job(key, JobState(spec, event.unix_ns()), /*events=*/0, services));
  job->record_.SetJob(job);
  JobLock lock(job->record_.mutex());
  job->record_.BeginLocked(event);
  return job;
}

std::shared_ptr<Job> Job::Recover(uint64_t key, JobState state, uint64_t events,
                                  const JobServices& services) {
  std::shared_ptr<Job> job(new Job(key, std::move(state), events, services));
  job->record_.SetJob(job);
  JobLock lock(job->record_.mutex());
  job->planning_.TakeUpBatchesLocked();
  job->traces_.TakeUpBatchesLocked();
  return job;
}

absl::StatusOr<BatchPlannerPtr> Job::Planner() const {
  JobLock lock(record_.mutex());
  PENSTOCK_RETURN_IF_ERROR(planners_.CheckPreparedLocked());
  return planners_.NewestLocked().registered;
}

v1::JobState Job::State() const {
  JobLock lock(record_.mutex());
  return PhaseLocked(record_, planners_);
}

absl::Duration Job::Age() const {
  JobLock lock(record_.mutex());
  return record_.TimeOfDay() - absl::FromUnixNanos(record_.state().last_unix_ns());
}

bool Job::IsStarted() const {
  if (!readers_.empty()) return true;
  JobLock lock(record_.mutex());
  return preparation_.IsWantedLocked() || record_.state().membership().epoch() > 0 ||
         record_.state().admission().next_iteration() > record_.spec().first_iteration();
}

bool Job::IsOver(absl::Duration patience) const {
  if (!readers_.empty()) return false;
  const absl::Duration age = Age();
  JobLock lock(record_.mutex());
  if (record_.state().finished() || !record_.state().planning_failure().empty() || !planners_.failure().ok())
    return true;
  return record_.state().membership().failed() && age > patience;
}

v1::JobStatus Job::Status() const {
  JobLock lock(record_.mutex());
  return StatusLocked();
}

v1::JobStatus Job::StatusLocked() const {
  v1::JobStatus status = StatusOf(record_.state());
  status.set_state(PhaseLocked(record_, planners_));
  status.set_failure(FailureLocked(record_, planners_));
  if (const absl::Status store = record_.services().journal->health(); !store.ok() && !record_.stopped())
    status.set_store_failure(std::string(store.message()));
  if (const std::optional<double> drift = admission_.LengthDriftLocked()) status.set_length_drift(*drift);
  if (diagnoses_.last().has_value()) *status.mutable_diagnosis() = *diagnoses_.last();
  for (v1::WorkerStatus& worker : *status.mutable_workers())
    worker.set_heartbeat_age_ms(absl::ToInt64Milliseconds(workers_.SilenceLocked(worker.rank())));
  return status;
}

v1::JobSpec Job::SpecNow() const {
  JobLock lock(record_.mutex());
  return record_.state().spec();
}

v1::GetJobResponse Job::Get(uint64_t from_iteration) const {
  JobLock lock(record_.mutex());
  v1::GetJobResponse response = DescriptionOf(record_.state(), from_iteration);
  *response.mutable_status() = StatusLocked();
  return response;
}

size_t Job::MemoryBytes() const {
  JobLock lock(record_.mutex());
  return record_.values().bytes();
}

store::v1::JobSnapshot Job::Snapshot() const {
  JobLock lock(record_.mutex());
  return record_.state().Save();
}

absl::StatusOr<v1::JobState> Job::Drain() {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  {
    JobLock lock(record_.mutex());
    if (absl::Status status = record_.CheckLiveLocked(); !status.ok()) return status;
    if (PhaseLocked(record_, planners_) == v1::JOB_STATE_FAILED) {
      return absl::FailedPreconditionError(absl::StrCat("job '", record_.id(),
                                                        "' failed: ", FailureLocked(record_, planners_),
                                                        ": delete it, or start its workers again"));
    }
    if (!record_.state().draining() && !record_.state().finished()) {
      store::v1::Event event;
      event.mutable_job_drained();
      record_.AppendLocked(std::move(event));
    }
    state = PhaseLocked(record_, planners_);
  }
  readers_.WakeAll();
  return state;
}

absl::Status Job::Delete(bool force) {
  {
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(record_.CheckLiveLocked());
    const Membership& membership = record_.state().membership();
    if (!force && !record_.state().finished() && !membership.failed() && !membership.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job '", id(), "' has workers: drain it first, or delete it by force"));
    }
    record_.DeleteLocked();
  }
  LogInfo("job deleted", {{"job", id()}});
  diagnoses_.Cancel();
  planning_.Cancel();
  preparation_.Cancel();
  costs_.Cancel();
  strategies_.Cancel();
  preparation_.TellWaiting(record_.DeletedError());
  readers_.WakeAll();
  return absl::OkStatus();
}

void Job::Tick() {
  workers_.ExpireLost();
  preparation_.Prepare();
  planning_.PlanMore();
}

void Job::Stop() {
  {
    JobLock lock(record_.mutex());
    record_.StopLocked();
  }
  diagnoses_.Cancel();
  preparation_.TellWaiting(JobRecord::StoppedError());
  readers_.WakeAll();
}

}  // namespace penstock
