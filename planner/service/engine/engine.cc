#include "planner/service/engine/engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/logging/logging.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/checked_plan.h"
#include "planner/service/engine/payer.h"
#include "planner/service/engine/planning_room.h"
#include "planner/service/engine/quota_uses.h"

namespace penstock {
namespace {

// What is not written by then is lost, as it would be after a kill.
constexpr absl::Duration kLastWrites = absl::Seconds(2);
// One plans what is not of a live job, the other is there for live jobs meanwhile, even on a single core.
constexpr int kFewestThreads = 2;
// So that neither a preparation nor a what-if, which may take minutes, keeps the other from beginning.
constexpr int kExtraThreads = 1;

}  // namespace

PlannerEngine::PlannerEngine(const EngineOptions& options, const EngineDependencies& dependencies)
    : options_(options),
      dependencies_(dependencies),
      memory_(options.job_memory_bytes, options.memory_bytes),
      streams_(options.stream_memory_bytes),
      quotas_(options.owners, dependencies.clock),
      journal_(options.journal, dependencies.store),
      pool_(
          std::max(kFewestThreads, options.planning_threads) + kExtraThreads, options.queue_capacity,
          dependencies.clock, options.planning_memory_bytes,
          [this](const PlanningWork& work, absl::Duration took) {
            quotas_.ChargePlanning(work.owner, work.kind, took);
          },
          dependencies.planning_begins) {}

PlannerEngine::~PlannerEngine() { Shutdown(absl::ZeroDuration()); }

core::PlanningRoom PlannerEngine::RoomOfJobs() const {
  return {.planning_bytes = options_.planning_memory_bytes, .program_message_bytes = options_.message_bytes};
}

JobServices PlannerEngine::Services() {
  return {.planners = dependencies_.planners,
          .checker = dependencies_.checker,
          .store = dependencies_.store,
          .journal = &journal_,
          .pool = &pool_,
          .clock = dependencies_.clock,
          .observer = dependencies_.observer,
          .planning_limit = options_.planning_limit,
          .memory = &memory_,
          .streams = &streams_,
          .quotas = &quotas_,
          .room = RoomOfJobs(),
          .message_bytes = options_.message_bytes,
          .preparation_threads = std::max(1, options_.planning_threads),
          .make_secret = dependencies_.make_secret};
}

void PlannerEngine::AddLocked(const std::shared_ptr<Job>& job) {
  jobs_[job->id()] = job;
  memory_.SetJobs(jobs_.size());
}

void PlannerEngine::RemoveLocked(const std::string& job_id) {
  jobs_.erase(job_id);
  memory_.SetJobs(jobs_.size());
}

absl::Status PlannerEngine::Recover() {
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t largest_key, dependencies_.store->LargestJob());
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredJob> stored, dependencies_.store->Load());
  std::vector<std::shared_ptr<Job>> jobs;
  for (const StoredJob& one : stored) {
    std::optional<std::string> snapshot;
    if (one.snapshot.has_value()) snapshot = one.snapshot->bytes;
    absl::StatusOr<JobState> state = ReplayJob(snapshot, one.events);
    if (!state.ok()) {
      return AnnotateError(state.status(),
                           absl::StrCat("job '", one.job_id, "' of the store (", one.job, ")"));
    }
    jobs.push_back(
        Job::Recover(one.job, *std::move(state), one.first_sequence + one.events.size() - 1, Services()));
    LogInfo("job taken up", {{"job", one.job_id}, {"events", one.events.size()}});
  }
  {
    MutexLock lock(&mutex_);
    largest_key_ = largest_key;
    for (const std::shared_ptr<Job>& job : jobs) AddLocked(job);
  }
  for (const std::shared_ptr<Job>& job : jobs) job->Prepare();
  return absl::OkStatus();
}

std::vector<JobPlace> PlannerEngine::PlacesOf(const std::vector<std::shared_ptr<Job>>& jobs) const {
  std::vector<JobPlace> places;
  places.reserve(jobs.size());
  for (const std::shared_ptr<Job>& job : jobs) {
    places.push_back({.owner = job->spec().owner(),
                      .age = job->Age(),
                      .over = job->IsOver(options_.keep_failed_jobs),
                      .started = job->IsStarted()});
  }
  return places;
}

std::vector<JobPlace> PlannerEngine::Places() const { return PlacesOf(Jobs()); }

std::vector<v1::QuotaUse> PlannerEngine::QuotaUses(const std::set<std::string>& owners) const {
  std::map<std::string, OwnerUse> uses;
  for (OwnerUse& use : OwnerUses()) uses.emplace(use.owner, std::move(use));
  const std::vector<JobPlace> places = Places();
  std::vector<v1::QuotaUse> quotas;
  for (const std::string& owner : owners) {
    if (owner.empty()) continue;
    OwnerUse use = uses.contains(owner) ? uses.at(owner) : OwnerUse{.owner = owner};
    for (v1::QuotaUse& quota : QuotaUsesOf(use, places, options_.quotas, options_.owners))
      quotas.push_back(std::move(quota));
  }
  return quotas;
}

absl::Status PlannerEngine::MakeRoomLocked(const std::string& owner) {
  while (true) {
    std::vector<std::shared_ptr<Job>> jobs;
    for (const auto& [id, job] : jobs_) jobs.push_back(job);
    const std::vector<JobPlace> places = PlacesOf(jobs);
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<size_t> leaves,
                              MakeRoomFor(owner, places, options_.quotas));
    if (!leaves.has_value()) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(jobs[*leaves]->Delete(/*force=*/true));
    RemoveLocked(jobs[*leaves]->id());
  }
}

absl::Status PlannerEngine::AdmitJobLocked(const v1::JobSpec& spec) {
  const std::string payer = PayerOf(spec);
  PENSTOCK_RETURN_IF_ERROR(quotas_.CheckPlanning(payer));
  absl::Status status = MakeRoomLocked(spec.owner());
  quotas_.CountRefusal(payer, status);
  return status;
}

absl::StatusOr<std::shared_ptr<Job>> PlannerEngine::FindOrAddJob(const v1::JobSpec& spec) {
  MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the planner stops; try again");
  if (const auto found = jobs_.find(spec.job_id()); found != jobs_.end()) {
    if (found->second->HasSpec(spec)) return found->second;
    return absl::AlreadyExistsError(absl::StrCat("job.job_id: job '", spec.job_id(),
                                                 "' exists with another specification: choose another id"));
  }
  PENSTOCK_RETURN_IF_ERROR(journal_.health());
  PENSTOCK_RETURN_IF_ERROR(AdmitJobLocked(spec));
  std::shared_ptr<Job> job = Job::Register(++largest_key_, spec, Services());
  AddLocked(job);
  LogInfo("job registered", {{"job", spec.job_id()},
                             {"pipeline", spec.mesh().pipeline()},
                             {"data", spec.mesh().data()},
                             {"tensor", TensorRanks(spec.mesh())},
                             {"context", ContextRanks(spec.mesh())},
                             {"first_iteration", spec.first_iteration()},
                             {"iterations", spec.training().iterations()}});
  return job;
}

PlannerEngine::Registration PlannerEngine::RegisterJob(const v1::JobSpec& spec, Registered done) {
  if (absl::Status status = AdmitPreparation(spec); !status.ok()) {
    done(status);
    return {};
  }
  absl::StatusOr<std::shared_ptr<Job>> job = FindOrAddJob(spec);
  if (!job.ok()) {
    done(job.status());
    return {};
  }
  (*job)->Prepare();
  const uint64_t waiter =
      (*job)->WhenPrepared([this, job = *job, done = std::move(done)](const absl::Status& status) {
        if (!status.ok() && !absl::IsUnavailable(status)) Forget(*job);
        job->WhenDurable([job, status, done](const absl::Status& durable) {
          if (!status.ok()) return done(status);
          if (!durable.ok()) return done(durable);
          done(job->State());
        });
      });
  return {*std::move(job), waiter};
}

void PlannerEngine::StopWaiting(const Registration& registration) {
  if (registration.job == nullptr || !registration.job->StopWaiting(registration.waiter)) return;
  LogInfo("a registration is given up: its client has gone", {{"job", registration.job->id()}});
  Forget(*registration.job);
}

void PlannerEngine::Forget(const Job& job) {
  std::shared_ptr<Job> forgotten;
  {
    MutexLock lock(&mutex_);
    const auto found = jobs_.find(job.id());
    if (found == jobs_.end() || found->second.get() != &job) return;
    forgotten = found->second;
    RemoveLocked(job.id());
  }
  forgotten->Delete(/*force=*/true).IgnoreError();
}

absl::Status PlannerEngine::DeleteJob(const std::string& job_id, bool force) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(job_id));
  PENSTOCK_RETURN_IF_ERROR(job->Delete(force));
  MutexLock lock(&mutex_);
  if (const auto found = jobs_.find(job_id); found != jobs_.end() && found->second == job)
    RemoveLocked(job_id);
  return absl::OkStatus();
}

void PlannerEngine::DeleteOldJobs() {
  for (const std::shared_ptr<Job>& job : Jobs()) {
    const bool over = job->Age() > options_.keep_finished_jobs && job->IsOver(options_.keep_finished_jobs);
    const bool idle = job->Age() > options_.keep_unstarted_jobs && !job->IsStarted();
    if (over || idle) Forget(*job);
  }
}

absl::StatusOr<std::shared_ptr<Job>> PlannerEngine::FindJob(const std::string& job_id) const {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("job_id: no job '", job_id, "' is registered"));
  }
  return found->second;
}

std::vector<std::shared_ptr<Job>> PlannerEngine::Jobs() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Job>> jobs;
  for (const auto& [id, job] : jobs_) jobs.push_back(job);
  return jobs;
}

absl::StatusOr<v1::Plan> PlannerEngine::PlanNow(const v1::PlanBatchRequest& request,
                                                core::StopToken stop) const {
  std::shared_ptr<const BatchPlanner> planner;
  if (request.has_job()) {
    PENSTOCK_ASSIGN_OR_RETURN(planner, dependencies_.planners->Create(request.job(), {}, {}, stop));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(request.job_id()));
    PENSTOCK_ASSIGN_OR_RETURN(planner, job->Planner());
  }
  PENSTOCK_RETURN_IF_ERROR(planner->ValidateBatch(request.batch(), stop));
  return MakeCheckedPlan(*planner, *dependencies_.checker, request.batch(), stop, *dependencies_.clock,
                         *dependencies_.observer);
}

absl::StatusOr<int64_t> PlannerEngine::AdmitPlanBatch(const v1::PlanBatchRequest& request) const {
  absl::StatusOr<core::PlanningShape> shape = core::PlanningShape();
  if (request.has_job()) {
    PENSTOCK_RETURN_IF_ERROR(dependencies_.planners->Check(request.job()));
    shape = dependencies_.planners->ShapeOf(request.job(), &request.batch());
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(request.job_id()));
    PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<const BatchPlanner> planner, job->Planner());
    shape = planner->ShapeOf(request.batch());
  }
  // Whoever plans it says what is wrong, and what would fit.
  if (!shape.ok()) return 0;
  core::PlanningRoom room = {.planning_bytes = options_.planning_memory_bytes,
                             .plan_message_bytes = options_.message_bytes};
  if (request.compact_version() < kCompactVersion) room.full_plan_message_bytes = options_.message_bytes;
  PENSTOCK_RETURN_IF_ERROR(CheckRoom("batch.samples", *shape, room));
  return core::FootprintOf(*shape).planning_bytes;
}

absl::Status PlannerEngine::AdmitPreparation(const v1::JobSpec& spec) const {
  PENSTOCK_RETURN_IF_ERROR(dependencies_.planners->Check(spec));
  const absl::StatusOr<core::PlanningShape> shape = dependencies_.planners->ShapeOf(spec, nullptr);
  // The preparation says what is wrong, and what would fit.
  if (!shape.ok() || shape->samples == 0) return absl::OkStatus();
  return CheckRoom("job.planning.typical_samples", *shape,
                   {.planning_bytes = options_.planning_memory_bytes});
}

bool PlannerEngine::stopped() const {
  MutexLock lock(&mutex_);
  return stopped_;
}

absl::Status PlannerEngine::ReserveWhatIf(const std::string& payer) {
  PENSTOCK_RETURN_IF_ERROR(quotas_.CheckPlanning(payer));
  if (pool_.TryReserve(PlanningClass::kWhatIf, payer, 1)) return absl::OkStatus();
  if (stopped()) return absl::UnavailableError("the planner stops; try again");
  return absl::ResourceExhaustedError("the planning queue is full: try again in a moment");
}

// What costs nothing to refuse is refused before anybody looks at the batch.
absl::StatusOr<int64_t> PlannerEngine::ReservePlan(const v1::PlanBatchRequest& request,
                                                   const std::string& payer) {
  const v1::Batch& batch = request.batch();
  PENSTOCK_RETURN_IF_ERROR(quotas_.CheckSamples(payer));
  PENSTOCK_RETURN_IF_ERROR(ReserveWhatIf(payer));
  const absl::StatusOr<int64_t> bytes = AdmitPlanBatch(request);
  absl::Status status = bytes.status();
  if (status.ok()) {
    const int samples = batch.samples_size() + batch.validation().samples_size();
    status = quotas_.TakeSamples(payer, static_cast<size_t>(samples));
  }
  if (status.ok()) return bytes;
  pool_.Release(PlanningClass::kWhatIf, payer, 1);
  return status;
}

// When its turn comes: those before it may have used what the quota has.
absl::Status PlannerEngine::BeginWhatIf(const PlanningTicket& ticket) const {
  PENSTOCK_RETURN_IF_ERROR(ticket.status());
  return quotas_.CheckPlanning(ticket.work().owner);
}

PlanningTicketPtr PlannerEngine::ReviseCosts(const v1::ReviseCostsRequest& request, std::string payer,
                                             CostsDone done) {
  absl::Status status = dependencies_.planners->Check(request.job());
  if (status.ok()) status = ReserveWhatIf(payer);
  if (!status.ok()) {
    done(status);
    return nullptr;
  }
  auto copy = std::make_shared<const v1::ReviseCostsRequest>(request);
  return pool_.Run({PlanningClass::kWhatIf, std::move(payer), options_.planning_limit},
                   [this, copy, done = std::move(done)](const PlanningTicket& ticket) {
                     if (absl::Status begun = BeginWhatIf(ticket); !begun.ok()) return done(begun);
                     const auto fitted = dependencies_.planners->CalibratePasses(*copy, ticket.stop());
                     if (!fitted.ok()) return done(ticket.Explain(fitted.status()));
                     v1::ReviseCostsResponse response;
                     *response.mutable_profile() = fitted->profile;
                     response.set_error_before(fitted->error_before);
                     response.set_error_after(fitted->error_after);
                     done(std::move(response));
                   });
}

PlanningTicketPtr PlannerEngine::PlanBatch(const v1::PlanBatchRequest& request, std::string payer,
                                           PlanDone done) {
  const absl::StatusOr<int64_t> bytes = ReservePlan(request, payer);
  if (!bytes.ok()) {
    done(bytes.status());
    return nullptr;
  }
  // The caller's request may go before its turn comes.
  auto copy = std::make_shared<const v1::PlanBatchRequest>(request);
  return pool_.Run({PlanningClass::kWhatIf, std::move(payer), options_.planning_limit, *bytes},
                   [this, copy, done = std::move(done)](const PlanningTicket& ticket) {
                     if (absl::Status begun = BeginWhatIf(ticket); !begun.ok()) return done(begun);
                     absl::StatusOr<v1::Plan> plan = PlanNow(*copy, ticket.stop());
                     if (!plan.ok()) plan = ticket.Explain(plan.status());
                     done(std::move(plan));
                   });
}

void PlannerEngine::Tick() {
  pool_.StopOverdue();
  for (const std::shared_ptr<Job>& job : Jobs()) job->Tick();
  DeleteOldJobs();
}

bool PlannerEngine::WatchMemory() {
  if (dependencies_.resident_bytes == nullptr || !pool_.computes()) return false;
  const size_t resident = dependencies_.resident_bytes();
  if (resident > options_.process_memory_bytes && pool_.StopLargest()) {
    LogWarning("planning is stopped: the planner has more memory than it may",
               {{"resident_bytes", resident}, {"limit_bytes", options_.process_memory_bytes}});
  }
  return true;
}

void PlannerEngine::ExcuseSilence(absl::Duration gap) {
  for (const std::shared_ptr<Job>& job : Jobs()) job->ExcuseSilence(gap);
}

void PlannerEngine::Shutdown(absl::Duration drain) {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (const std::shared_ptr<Job>& job : Jobs()) job->Stop();
  pool_.Shutdown(drain);
  journal_.Stop(kLastWrites);
}

}  // namespace penstock
