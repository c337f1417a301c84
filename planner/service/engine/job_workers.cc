// Job: its workers.
#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job.h"

namespace penstock {

absl::Status Job::CheckStartLocked(uint64_t first_iteration) const {
  if (finished_) return absl::FailedPreconditionError(absl::StrCat("job '", spec_.job_id(), "' is finished"));
  if (!planning_failure_.empty()) return absl::FailedPreconditionError(planning_failure_);
  if (first_iteration < spec_.first_iteration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_iteration is ", first_iteration, ", but the job starts at iteration ",
                     spec_.first_iteration(), ": give the worker the checkpoint of that iteration"));
  }
  if (first_iteration > admission_.next_iteration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_iteration is ", first_iteration, ", but the planner has batches only to before ",
                     admission_.next_iteration(), ": register the job with this first_iteration"));
  }
  if (first_iteration < first_held_) {
    return absl::FailedPreconditionError(absl::StrCat("first_iteration: iteration ", first_iteration,
                                                      " is no longer held, the first is ", first_held_,
                                                      ": resume from a later checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status Job::RestartLocked(uint64_t first_iteration) {
  progress_.Restart(first_iteration);
  while (!summaries_.empty() && summaries_.back().iteration() >= first_iteration) summaries_.pop_back();
  return services_.store->DropReports(spec_.job_id(), first_iteration);
}

absl::StatusOr<v1::RegisterWorkerResponse> Job::RegisterWorker(const v1::RegisterWorkerRequest& request) {
  v1::RegisterWorkerResponse response;
  {
    MutexLock lock(&mutex_);
    PENSTOCK_RETURN_IF_ERROR(CheckStartLocked(request.first_iteration()));
    PENSTOCK_ASSIGN_OR_RETURN(const Membership::Registration registration,
                              membership_.Register(request, services_.clock->Now()));
    if (registration.opened_epoch) PENSTOCK_RETURN_IF_ERROR(RestartLocked(request.first_iteration()));
    response.set_rank(registration.rank);
    response.set_epoch(registration.epoch);
    response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(membership_.heartbeat_interval()));
    LogInfo("worker registered", {{"job", spec_.job_id()},
                                  {"rank", registration.rank},
                                  {"epoch", registration.epoch},
                                  {"host", request.host()},
                                  {"incarnation", request.incarnation()},
                                  {"first_iteration", request.first_iteration()}});
    LogEpochLocked();
  }
  readers_.WakeAll();
  *response.mutable_job() = spec_;
  *response.mutable_topology() = planner_->Topology();
  return response;
}

v1::HeartbeatResponse Job::AnswerHeartbeatLocked(uint32_t rank) {
  if (finished_ || planning_failure_.empty()) return membership_.Answer(rank, finished_);
  v1::HeartbeatResponse response;
  response.set_state(v1::EPOCH_STATE_FAILED);
  response.set_failure(planning_failure_);
  return response;
}

absl::StatusOr<v1::HeartbeatResponse> Job::Heartbeat(const v1::HeartbeatRequest& request) {
  v1::HeartbeatResponse response;
  bool failed_now = false;
  {
    MutexLock lock(&mutex_);
    const bool failed_before = membership_.failed();
    PENSTOCK_RETURN_IF_ERROR(membership_.Heartbeat(request, finished_, services_.clock->Now()));
    failed_now = membership_.failed() && !failed_before;
    response = AnswerHeartbeatLocked(request.rank());
    LogEpochLocked();
  }
  if (failed_now) readers_.WakeAll();
  return response;
}

void Job::LogEpochLocked() {
  if (membership_.ready() && logged_ready_epoch_ != membership_.epoch()) {
    logged_ready_epoch_ = membership_.epoch();
    LogInfo("all workers are there",
            {{"job", spec_.job_id()}, {"epoch", membership_.epoch()}, {"ranks", ranks_}});
  }
  if (std::string failure = membership_.failure(); failure != logged_failure_) {
    logged_failure_ = std::move(failure);
    if (logged_failure_.empty()) return;
    LogError("epoch failed",
             {{"job", spec_.job_id()}, {"epoch", membership_.epoch()}, {"reason", logged_failure_}});
  }
}

}  // namespace penstock
