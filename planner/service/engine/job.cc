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
    : key_(key),
      spec_(state.RegisteredSpec()),
      id_(spec_.job_id()),
      payer_(PayerOf(spec_)),
      serialized_spec_(spec_.SerializeAsString()),
      services_(services),
      messages_(services.streams, services.quotas, payer_, services.message_bytes),
      diagnoses_(std::make_shared<JobDiagnoses>(services, id_, payer_)),
      state_(std::move(state)),
      events_(events),
      snapshot_events_(events),
      heartbeats_(state_.ranks(), HeartbeatTimeoutOf(spec_), services.clock->Now()),
      length_drift_(state_.spec().planning()),
      durable_batches_(state_.admission().next_iteration()),
      // Whatever is planned may have been sent before the planner started.
      sent_(state_.ranks(), state_.planned()) {}

std::shared_ptr<Job> Job::Register(uint64_t key, const v1::JobSpec& spec, const JobServices& services) {
  store::v1::Event event;
  event.set_unix_ns(absl::ToUnixNanos(services.clock->TimeOfDay()));
  *event.mutable_job_registered()->mutable_spec() = spec;
  std::shared_ptr<Job> job(new Job(key, JobState(spec, event.unix_ns()), /*events=*/0, services));
  MutexLock lock(&job->mutex_);
  services.journal->Append(job->payer_, job->ChangeLocked(event, {}));
  job->LogNewsLocked();
  return job;
}

std::shared_ptr<Job> Job::Recover(uint64_t key, JobState state, uint64_t events,
                                  const JobServices& services) {
  std::shared_ptr<Job> job(new Job(key, std::move(state), events, services));
  MutexLock lock(&job->mutex_);
  job->SuspectUnplannedLocked();
  job->TakeUpBatchesLocked();
  return job;
}

// Compared as bytes: a profile may hold NaN, which is never equal to itself.
bool Job::HasSpec(const v1::JobSpec& spec) const { return spec.SerializeAsString() == serialized_spec_; }

absl::Status Job::DeletedError() const {
  return absl::NotFoundError(absl::StrCat("job '", id_, "' was deleted"));
}

absl::Status Job::CheckLiveLocked() const {
  if (deleted_) return DeletedError();
  if (stopped_) return absl::UnavailableError("the planner stops; try again");
  return services_.journal->health();
}

v1::JobState Job::State() const {
  MutexLock lock(&mutex_);
  return StateLocked();
}

v1::JobState Job::StateLocked() const {
  if (state_.finished()) return v1::JOB_STATE_FINISHED;
  if (!state_.failure().empty() || !preparation_failure_.ok()) return v1::JOB_STATE_FAILED;
  if (state_.draining()) return v1::JOB_STATE_DRAINING;
  if (planner_ == nullptr) return v1::JOB_STATE_PREPARING;
  return state_.membership().ready() ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_REGISTERED;
}

absl::Duration Job::Age() const {
  MutexLock lock(&mutex_);
  return services_.clock->TimeOfDay() - absl::FromUnixNanos(state_.last_unix_ns());
}

bool Job::IsStarted() const {
  if (!readers_.empty()) return true;
  MutexLock lock(&mutex_);
  return preparing_ || !await_preparation_.empty() || state_.membership().epoch() > 0 ||
         state_.admission().next_iteration() > spec_.first_iteration();
}

bool Job::IsOver(absl::Duration patience) const {
  if (!readers_.empty()) return false;
  const absl::Duration age = Age();
  MutexLock lock(&mutex_);
  if (state_.finished() || !state_.planning_failure().empty() || !preparation_failure_.ok()) return true;
  return state_.membership().failed() && age > patience;
}

v1::JobStatus Job::Status() const {
  MutexLock lock(&mutex_);
  return StatusLocked();
}

v1::JobStatus Job::StatusLocked() const {
  v1::JobStatus status = StatusOf(state_);
  status.set_state(StateLocked());
  if (!state_.finished() && !preparation_failure_.ok()) status.set_failure(preparation_failure_.ToString());
  if (const absl::Status store = services_.journal->health(); !store.ok() && !stopped_)
    status.set_store_failure(std::string(store.message()));
  if (const std::optional<double> drift = length_drift_.share()) status.set_length_drift(*drift);
  if (std::optional<v1::JobDiagnosis> diagnosis = diagnoses_->last())
    *status.mutable_diagnosis() = *std::move(diagnosis);
  const absl::Time now = services_.clock->Now();
  for (v1::WorkerStatus& worker : *status.mutable_workers())
    worker.set_heartbeat_age_ms(absl::ToInt64Milliseconds(heartbeats_.Silence(worker.rank(), now)));
  return status;
}

v1::JobSpec Job::SpecNow() const {
  MutexLock lock(&mutex_);
  return state_.spec();
}

v1::GetJobResponse Job::Get(uint64_t from_iteration) const {
  MutexLock lock(&mutex_);
  v1::GetJobResponse response = DescriptionOf(state_, from_iteration);
  *response.mutable_status() = StatusLocked();
  return response;
}

std::vector<v1::IterationSummary> Job::Summaries(uint64_t from_iteration) const {
  std::vector<v1::IterationSummary> summaries;
  MutexLock lock(&mutex_);
  const auto& all = state_.summaries();
  const auto first = std::ranges::lower_bound(
      all, from_iteration, {}, [](const v1::IterationSummary& one) { return one.iteration(); });
  summaries.assign(first, all.end());
  return summaries;
}

std::optional<v1::IterationSummary> Job::LastSummary() const {
  MutexLock lock(&mutex_);
  if (state_.summaries().empty()) return std::nullopt;
  return state_.summaries().back();
}

size_t Job::MemoryBytes() const {
  MutexLock lock(&mutex_);
  return values_.bytes();
}

store::v1::JobSnapshot Job::Snapshot() const {
  MutexLock lock(&mutex_);
  return state_.Save();
}

void Job::WantPlanLocked(uint64_t iteration) {
  if (!values_.Has(iteration)) wanted_.insert(iteration);
}

absl::StatusOr<HeldIteration> Job::Held(uint64_t iteration) const {
  MutexLock lock(&mutex_);
  if (iteration < state_.first_held() || !state_.IsPlanned(iteration)) {
    return absl::OutOfRangeError(absl::StrCat("iteration: ", iteration,
                                              " is not held; planned iterations from ", state_.first_held(),
                                              " to before ", state_.planned(), " are"));
  }
  HeldIteration held = {.batch = values_.batch(iteration), .plan = values_.plan(iteration), .reports = {}};
  if (held.batch == nullptr || held.plan == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("iteration: the plan of ", iteration, " is no longer in memory"));
  }
  held.reports = values_.reports(iteration);
  return held;
}

absl::StatusOr<v1::GetIterationResponse> Job::GetIteration(uint64_t iteration, uint32_t compact_version) {
  const absl::StatusOr<HeldIteration> held = Held(iteration);
  if (absl::IsUnavailable(held.status())) {
    {
      MutexLock lock(&mutex_);
      if (const auto lost = lost_plans_.extract(iteration); !lost.empty() && IsDoneLocked(iteration))
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
  MutexLock lock(&mutex_);
  if (const store::v1::CostsRevised* costs = state_.CostsOf(iteration); costs != nullptr)
    *response.mutable_profile() = costs->profile();
  PENSTOCK_RETURN_IF_ERROR(CheckMessage(absl::StrCat("the plan of iteration ", iteration), response,
                                        services_.message_bytes, compact_version));
  return response;
}

absl::StatusOr<v1::JobState> Job::Drain() {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  {
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckLiveLocked(); !status.ok()) return status;
    if (StateLocked() == v1::JOB_STATE_FAILED) {
      return absl::FailedPreconditionError(absl::StrCat("job '", id_, "' failed: ", StatusLocked().failure(),
                                                        ": delete it, or start its workers again"));
    }
    if (!state_.draining() && !state_.finished()) {
      store::v1::Event event;
      event.mutable_job_drained();
      RecordLocked(std::move(event));
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
    MutexLock lock(&mutex_);
    if (absl::Status status = CheckLiveLocked(); !status.ok()) return status;
    if (!force && !state_.finished() && !state_.membership().failed() && !state_.membership().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job '", id_, "' has workers: drain it first, or delete it by force"));
    }
    deleted_ = true;
    waiting.swap(await_preparation_);
    services_.journal->Append(payer_, {.job = key_, .job_id = id_, .remove = true});
    for (const auto& [iteration, ticket] : planning_) tickets.push_back(ticket);
    tickets.push_back(std::move(preparation_));
    tickets.push_back(std::move(fitting_));
    tickets.push_back(std::move(change_));
  }
  diagnoses_->Stop();
  LogInfo("job deleted", {{"job", id_}});
  for (const PlanningTicketPtr& ticket : tickets) {
    if (ticket != nullptr) services_.pool->Cancel(ticket);
  }
  for (const auto& [waiter, prepared] : waiting) prepared(DeletedError());
  readers_.WakeAll();
  return absl::OkStatus();
}

void Job::Tick() {
  bool failed_now = false;
  {
    MutexLock lock(&mutex_);
    if (stopped_ || deleted_) return;
    const bool failed_before = state_.membership().failed();
    ExpireWorkersLocked();
    failed_now = state_.membership().failed() && !failed_before;
  }
  if (failed_now) readers_.WakeAll();
  Prepare();
  PlanMore();
}

void Job::Stop() {
  std::map<uint64_t, Prepared> waiting;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    waiting.swap(await_preparation_);
  }
  diagnoses_->Stop();
  for (const auto& [waiter, prepared] : waiting)
    prepared(absl::UnavailableError("the planner stops; try again"));
  readers_.WakeAll();
}

}  // namespace penstock
