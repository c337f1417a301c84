#include "planner/service/engine/job.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/message_limit.h"
#include "planner/service/engine/payer.h"
#include "planner/service/state/job_status.h"

namespace penstock {
namespace {

constexpr uint32_t kDefaultHeartbeatTimeoutMs = 5000;

absl::Duration HeartbeatTimeoutOf(const v1::JobSpec& spec) {
  return absl::Milliseconds(spec.heartbeat_timeout_ms() == 0 ? kDefaultHeartbeatTimeoutMs
                                                             : spec.heartbeat_timeout_ms());
}

}  // namespace

Job::Job(uint64_t key, JobState state, uint64_t events, const JobServices& services)
    : record_(key, std::move(state), events, services),
      messages_(services.streams, services.quotas, record_.payer(), services.message_bytes),
      diagnoses_(std::make_shared<JobDiagnoses>(services, record_.id(), record_.payer())),
      heartbeats_(record_.state().ranks(), HeartbeatTimeoutOf(record_.spec()), services.clock->Now()),
      length_drift_(record_.state().spec().planning()),
      durable_batches_(record_.state().admission().next_iteration()),
      // Whatever is planned may have been sent before the planner started.
      sent_(record_.state().ranks(), record_.state().planned()) {}

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
  job->SuspectUnplannedLocked();
  job->TakeUpBatchesLocked();
  return job;
}

v1::JobState Job::State() const {
  JobLock lock(record_.mutex());
  return StateLocked();
}

v1::JobState Job::StateLocked() const {
  if (record_.state().finished()) return v1::JOB_STATE_FINISHED;
  if (!record_.state().failure().empty() || !preparation_failure_.ok()) return v1::JOB_STATE_FAILED;
  if (record_.state().draining()) return v1::JOB_STATE_DRAINING;
  if (planner_ == nullptr) return v1::JOB_STATE_PREPARING;
  return record_.state().membership().ready() ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_REGISTERED;
}

absl::Duration Job::Age() const {
  JobLock lock(record_.mutex());
  return record_.TimeOfDay() - absl::FromUnixNanos(record_.state().last_unix_ns());
}

bool Job::IsStarted() const {
  if (!readers_.empty()) return true;
  JobLock lock(record_.mutex());
  return preparing_ || !await_preparation_.empty() || record_.state().membership().epoch() > 0 ||
         record_.state().admission().next_iteration() > record_.spec().first_iteration();
}

bool Job::IsOver(absl::Duration patience) const {
  if (!readers_.empty()) return false;
  const absl::Duration age = Age();
  JobLock lock(record_.mutex());
  if (record_.state().finished() || !record_.state().planning_failure().empty() || !preparation_failure_.ok())
    return true;
  return record_.state().membership().failed() && age > patience;
}

v1::JobStatus Job::Status() const {
  JobLock lock(record_.mutex());
  return StatusLocked();
}

v1::JobStatus Job::StatusLocked() const {
  v1::JobStatus status = StatusOf(record_.state());
  status.set_state(StateLocked());
  if (!record_.state().finished() && !preparation_failure_.ok())
    status.set_failure(preparation_failure_.ToString());
  if (const absl::Status store = record_.services().journal->health(); !store.ok() && !record_.stopped())
    status.set_store_failure(std::string(store.message()));
  if (const std::optional<double> drift = length_drift_.share()) status.set_length_drift(*drift);
  if (std::optional<v1::JobDiagnosis> diagnosis = diagnoses_->last())
    *status.mutable_diagnosis() = *std::move(diagnosis);
  const absl::Time now = record_.services().clock->Now();
  for (v1::WorkerStatus& worker : *status.mutable_workers())
    worker.set_heartbeat_age_ms(absl::ToInt64Milliseconds(heartbeats_.Silence(worker.rank(), now)));
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

std::vector<v1::IterationSummary> Job::Summaries(uint64_t from_iteration) const {
  std::vector<v1::IterationSummary> summaries;
  JobLock lock(record_.mutex());
  const auto& all = record_.state().summaries();
  const auto first = std::ranges::lower_bound(
      all, from_iteration, {}, [](const v1::IterationSummary& one) { return one.iteration(); });
  summaries.assign(first, all.end());
  return summaries;
}

std::optional<v1::IterationSummary> Job::LastSummary() const {
  JobLock lock(record_.mutex());
  if (record_.state().summaries().empty()) return std::nullopt;
  return record_.state().summaries().back();
}

size_t Job::MemoryBytes() const {
  JobLock lock(record_.mutex());
  return record_.values().bytes();
}

store::v1::JobSnapshot Job::Snapshot() const {
  JobLock lock(record_.mutex());
  return record_.state().Save();
}

void Job::WantPlanLocked(uint64_t iteration) {
  wanted_.erase(wanted_.begin(), wanted_.lower_bound(record_.state().first_held()));
  if (!record_.values().Has(iteration)) wanted_.insert(iteration);
}

absl::StatusOr<HeldIteration> Job::Held(uint64_t iteration) const {
  JobLock lock(record_.mutex());
  if (iteration < record_.state().first_held() || !record_.state().IsPlanned(iteration)) {
    return absl::OutOfRangeError(
        absl::StrCat("iteration: ", iteration, " is not held; planned iterations from ",
                     record_.state().first_held(), " to before ", record_.state().planned(), " are"));
  }
  HeldIteration held = record_.values().Held(iteration);
  if (held.batch == nullptr || held.plan == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("iteration: the plan of ", iteration, " is no longer in memory"));
  }
  return held;
}

absl::StatusOr<v1::GetIterationResponse> Job::GetIteration(uint64_t iteration, uint32_t compact_version) {
  const absl::StatusOr<HeldIteration> held = Held(iteration);
  if (absl::IsUnavailable(held.status())) {
    {
      JobLock lock(record_.mutex());
      if (const auto lost = lost_plans_.extract(iteration); !lost.empty() && record_.IsDoneLocked(iteration))
        return lost.mapped();
      WantPlanLocked(iteration);
    }
    PlanMore();
    return absl::UnavailableError(absl::StrCat(held.status().message(), " and is made again; try again"));
  }
  PENSTOCK_RETURN_IF_ERROR(held.status());
  v1::GetIterationResponse response;
  *response.mutable_batch() = *held->batch;
  if (compact_version >= kCompactVersion) {
    held->plan->CompactTo(response.mutable_plan(), response.mutable_instruction_columns());
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_plan(), held->plan->Plan());
  }
  for (const ReportPtr& report : held->reports) *response.add_reports() = *report;
  JobLock lock(record_.mutex());
  if (const store::v1::CostsRevised* costs = record_.state().CostsOf(iteration); costs != nullptr)
    *response.mutable_profile() = costs->profile();
  PENSTOCK_RETURN_IF_ERROR(CheckMessage(absl::StrCat("the plan of iteration ", iteration), response,
                                        record_.services().message_bytes, compact_version));
  return response;
}

absl::StatusOr<v1::JobState> Job::Drain() {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  {
    JobLock lock(record_.mutex());
    if (absl::Status status = record_.CheckLiveLocked(); !status.ok()) return status;
    if (StateLocked() == v1::JOB_STATE_FAILED) {
      return absl::FailedPreconditionError(absl::StrCat("job '", record_.id(),
                                                        "' failed: ", StatusLocked().failure(),
                                                        ": delete it, or start its workers again"));
    }
    if (!record_.state().draining() && !record_.state().finished()) {
      store::v1::Event event;
      event.mutable_job_drained();
      record_.AppendLocked(std::move(event));
    }
    state = StateLocked();
  }
  readers_.WakeAll();
  return state;
}

absl::Status Job::Delete(bool force) {
  std::map<uint64_t, Prepared> waiting;
  std::vector<PlanningTicketPtr> tickets;
  {
    JobLock lock(record_.mutex());
    if (absl::Status status = record_.CheckLiveLocked(); !status.ok()) return status;
    if (!force && !record_.state().finished() && !record_.state().membership().failed() &&
        !record_.state().membership().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job '", record_.id(), "' has workers: drain it first, or delete it by force"));
    }
    record_.DeleteLocked();
    waiting.swap(await_preparation_);
    for (const auto& [iteration, ticket] : planning_) tickets.push_back(ticket);
    tickets.push_back(std::move(preparation_));
    tickets.push_back(std::move(fitting_));
    tickets.push_back(std::move(change_));
  }
  diagnoses_->Stop();
  LogInfo("job deleted", {{"job", record_.id()}});
  for (const PlanningTicketPtr& ticket : tickets) {
    if (ticket != nullptr) record_.services().pool->Cancel(ticket);
  }
  for (const auto& [waiter, prepared] : waiting) prepared(record_.DeletedError());
  readers_.WakeAll();
  return absl::OkStatus();
}

void Job::Tick() {
  bool failed_now = false;
  {
    JobLock lock(record_.mutex());
    if (record_.ended()) return;
    const bool failed_before = record_.state().membership().failed();
    ExpireWorkersLocked();
    failed_now = record_.state().membership().failed() && !failed_before;
  }
  if (failed_now) readers_.WakeAll();
  Prepare();
  PlanMore();
}

void Job::Stop() {
  std::map<uint64_t, Prepared> waiting;
  {
    JobLock lock(record_.mutex());
    record_.StopLocked();
    waiting.swap(await_preparation_);
  }
  diagnoses_->Stop();
  for (const auto& [waiter, prepared] : waiting) prepared(JobRecord::StoppedError());
  readers_.WakeAll();
}

}  // namespace penstock
