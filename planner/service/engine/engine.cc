#include "planner/service/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/checked_plan.h"

namespace penstock {

PlannerEngine::PlannerEngine(const EngineOptions& options, const EngineDependencies& dependencies)
    : options_(options),
      dependencies_(dependencies),
      pool_(options.planning_threads, options.queue_capacity, dependencies.clock) {}

PlannerEngine::~PlannerEngine() { Shutdown(absl::ZeroDuration()); }

// A job that is over is forgotten when a new one needs its place.
absl::Status PlannerEngine::MakeRoomLocked() {
  if (jobs_.size() < options_.max_jobs) return absl::OkStatus();
  const auto over =
      std::find_if(jobs_.begin(), jobs_.end(), [](const auto& entry) { return entry.second->IsOver(); });
  if (over == jobs_.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the planner has ", jobs_.size(),
                     " jobs that are not finished, its limit: drain one, or raise --max-jobs"));
  }
  PENSTOCK_RETURN_IF_ERROR(dependencies_.store->RemoveJob(over->first));
  jobs_.erase(over);
  return absl::OkStatus();
}

absl::StatusOr<v1::JobState> PlannerEngine::RegisterJob(const v1::JobSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<BatchPlanner> planner,
                            dependencies_.planners->Create(spec, core::StopToken()));
  MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the planner stops; try again");
  if (const auto found = jobs_.find(spec.job_id()); found != jobs_.end()) {
    if (found->second->HasSpec(spec)) return found->second->State();
    return absl::AlreadyExistsError(absl::StrCat("job.job_id: job '", spec.job_id(),
                                                 "' exists with another specification: choose another id"));
  }
  PENSTOCK_RETURN_IF_ERROR(MakeRoomLocked());
  PENSTOCK_RETURN_IF_ERROR(dependencies_.store->AddJob(spec));
  const JobServices services{dependencies_.checker, dependencies_.store,    &pool_,
                             dependencies_.clock,   dependencies_.observer, options_.planning_limit};
  auto job = std::make_shared<Job>(spec, std::move(planner), services);
  jobs_[spec.job_id()] = job;
  LogInfo("job registered", {{"job", spec.job_id()},
                             {"pipeline", spec.mesh().pipeline()},
                             {"data", spec.mesh().data()},
                             {"first_iteration", spec.first_iteration()},
                             {"iterations", spec.training().iterations()}});
  return job->State();
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
  std::shared_ptr<Job> job;
  std::unique_ptr<BatchPlanner> own_planner;
  const BatchPlanner* planner = nullptr;
  if (request.has_job()) {
    PENSTOCK_ASSIGN_OR_RETURN(own_planner, dependencies_.planners->Create(request.job(), stop));
    planner = own_planner.get();
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(job, FindJob(request.job_id()));
    planner = &job->planner();
  }
  PENSTOCK_RETURN_IF_ERROR(planner->ValidateBatch(request.batch(), stop));
  return MakeCheckedPlan(*planner, *dependencies_.checker, request.batch(), stop, *dependencies_.clock,
                         *dependencies_.observer);
}

bool PlannerEngine::stopped() const {
  MutexLock lock(&mutex_);
  return stopped_;
}

PlanningTicketPtr PlannerEngine::PlanBatch(const v1::PlanBatchRequest& request, std::string owner,
                                           PlanDone done) {
  if (!pool_.TryReserve(PlanningClass::kWhatIf, owner, 1)) {
    done(stopped() ? absl::UnavailableError("the planner stops; try again")
                   : absl::ResourceExhaustedError("the planning queue is full: try again in a moment"));
    return nullptr;
  }
  // The caller's request may go before its turn comes.
  auto copy = std::make_shared<const v1::PlanBatchRequest>(request);
  return pool_.Run({PlanningClass::kWhatIf, std::move(owner), options_.planning_limit},
                   [this, copy, done = std::move(done)](const PlanningTicket& ticket) {
                     if (!ticket.status().ok()) return done(ticket.status());
                     absl::StatusOr<v1::Plan> plan = PlanNow(*copy, ticket.stop());
                     if (!plan.ok()) plan = ticket.Explain(plan.status());
                     done(std::move(plan));
                   });
}

void PlannerEngine::Tick() {
  pool_.StopOverdue();
  for (const std::shared_ptr<Job>& job : Jobs()) job->Tick();
}

void PlannerEngine::Shutdown(absl::Duration drain) {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (const std::shared_ptr<Job>& job : Jobs()) job->Stop();
  pool_.Shutdown(drain);
}

}  // namespace penstock
