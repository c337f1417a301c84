#include "planner/service/engine/job_workers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/logging/logging.h"
#include "common/secret/incarnation.h"
#include "common/status/status_macros.h"
#include "penstock/client/finished_job.h"

namespace penstock {
namespace {

constexpr uint32_t kDefaultHeartbeatTimeoutMs = 5000;

absl::Duration HeartbeatTimeoutOf(const v1::JobSpec& spec) {
  return absl::Milliseconds(spec.heartbeat_timeout_ms() == 0 ? kDefaultHeartbeatTimeoutMs
                                                             : spec.heartbeat_timeout_ms());
}

}  // namespace

JobWorkers::JobWorkers(JobRecord& record, const JobPlanners& planners, JobReaders& readers)
    : record_(record),
      planners_(planners),
      readers_(readers),
      heartbeats_(record.state().ranks(), HeartbeatTimeoutOf(record.spec()), record.services().clock->Now()) {
}

absl::Status JobWorkers::CheckStartLocked(uint64_t first_iteration) const {
  PENSTOCK_RETURN_IF_ERROR(record_.CheckLiveLocked());
  if (record_.state().finished()) {
    return WithFinishedJob(
        absl::FailedPreconditionError(absl::StrCat("job '", record_.id(), "' is finished")),
        record_.state().progress().completed());
  }
  if (!record_.state().planning_failure().empty())
    return absl::FailedPreconditionError(record_.state().planning_failure());
  PENSTOCK_RETURN_IF_ERROR(planners_.CheckPreparedLocked());
  if (first_iteration < record_.spec().first_iteration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_iteration is ", first_iteration, ", but the job starts at iteration ",
                     record_.spec().first_iteration(), ": give the worker the checkpoint of that iteration"));
  }
  const uint64_t next = record_.state().admission().next_iteration();
  const uint64_t total = record_.spec().training().iterations();
  // After a restore the feeder brings the batches up to there once the job begins there.
  const bool may_be_ahead = record_.state().restored() && (total == 0 || first_iteration <= total);
  if (first_iteration > next && !may_be_ahead) {
    return absl::InvalidArgumentError(absl::StrCat("first_iteration is ", first_iteration,
                                                   ", but the planner has batches only to before ", next,
                                                   ": register the job with this first_iteration"));
  }
  if (first_iteration < record_.state().first_held()) {
    return absl::FailedPreconditionError(
        absl::StrCat("first_iteration: iteration ", first_iteration, " is no longer held, the first is ",
                     record_.state().first_held(), ": resume from a later checkpoint"));
  }
  return absl::OkStatus();
}

void JobWorkers::FailLocked(store::v1::FailureKind kind, uint32_t rank, absl::string_view what) {
  if (record_.state().membership().KnowsFailureOf(rank)) return;
  store::v1::Event event;
  event.mutable_worker_failed()->set_kind(kind);
  event.mutable_worker_failed()->set_rank(rank);
  event.mutable_worker_failed()->set_what(absl::StrCat(record_.state().membership().NameOf(rank), " ", what));
  record_.AppendLocked(std::move(event));
}

absl::StatusOr<v1::RegisterWorkerResponse> JobWorkers::Register(const v1::RegisterWorkerRequest& request) {
  v1::RegisterWorkerResponse response;
  // Of the epoch that this worker may open.
  PENSTOCK_ASSIGN_OR_RETURN(std::string new_secret, record_.services().make_secret());
  {
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(CheckStartLocked(request.first_iteration()));
    PENSTOCK_ASSIGN_OR_RETURN(const Membership::Place place, record_.state().membership().PlaceFor(request));
    if (!place.held) {
      store::v1::Event event;
      store::v1::WorkerRegistered* registered = event.mutable_worker_registered();
      registered->set_rank(place.rank);
      registered->set_incarnation(request.incarnation());
      registered->set_host(request.host());
      registered->set_first_iteration(request.first_iteration());
      registered->set_opens_epoch(place.opens_epoch);
      if (place.opens_epoch) registered->set_epoch_secret(std::move(new_secret));
      record_.AppendLocked(std::move(event));
      if (place.opens_epoch) readers_.BeginEpochLocked(request.first_iteration());
      heartbeats_.Join(place.rank, record_.services().clock->Now());
      LogInfo("worker registered", {{"job", record_.id()},
                                    {"rank", place.rank},
                                    {"epoch", record_.state().membership().epoch()},
                                    {"host", request.host()},
                                    {"incarnation", IncarnationDigest(request.incarnation())},
                                    {"first_iteration", request.first_iteration()}});
    }
    if (const uint64_t first = record_.state().membership().first_iteration();
        !place.held && request.first_iteration() != first) {
      FailLocked(
          store::v1::FAILURE_KIND_DISAGREED, place.rank,
          absl::StrCat("would start at iteration ", request.first_iteration(), ", but its epoch starts at ",
                       first, ": give every worker the same checkpoint"));
    }
    response.set_rank(place.rank);
    response.set_epoch(record_.state().membership().epoch());
    response.set_epoch_secret(record_.state().membership().secret());
    response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(heartbeats_.interval()));
    const std::vector<v1::Topology>& topologies = record_.state().topologies();
    *response.mutable_topology() = topologies.front();
    if (!record_.spec().strategies().empty())
      response.mutable_strategies()->Assign(topologies.begin(), topologies.end());
    *response.mutable_job() = record_.SpecLocked(record_.spec().profile());
  }
  readers_.WakeAll();
  return response;
}

void JobWorkers::TakeHeartbeatLocked(const v1::HeartbeatRequest& request) {
  const uint32_t rank = request.rank();
  heartbeats_.Hear(rank, record_.services().clock->Now());
  if (rank == 0 && record_.state().membership().rendezvous_address().empty() &&
      !request.rendezvous_address().empty()) {
    store::v1::Event event;
    event.mutable_rendezvous_opened()->set_address(request.rendezvous_address());
    record_.AppendLocked(std::move(event));
  }
  if (record_.state().finished()) {
    if (!request.leaving()) return;
    store::v1::Event event;
    event.mutable_worker_left()->set_rank(rank);
    record_.AppendLocked(std::move(event));
  } else if (!request.failure().empty()) {
    FailLocked(store::v1::FAILURE_KIND_REPORTED, rank,
               absl::StrCat("reported: ", request.failure().substr(0, Membership::kMaxFailureBytes)));
  } else if (request.leaving() && !heartbeats_.KnowsFailure(rank)) {
    FailLocked(store::v1::FAILURE_KIND_LEFT, rank, "left before the job was finished");
  }
}

v1::HeartbeatResponse JobWorkers::AnswerHeartbeatLocked(uint32_t rank) {
  const Membership& membership = record_.state().membership();
  v1::HeartbeatResponse response;
  if (record_.state().finished()) {
    response.set_state(v1::EPOCH_STATE_FINISHED);
  } else if (!record_.state().failure().empty()) {
    heartbeats_.TellFailure(rank);
    response.set_state(v1::EPOCH_STATE_FAILED);
    response.set_failure(record_.state().failure());
  } else if (membership.ready()) {
    response.set_state(v1::EPOCH_STATE_READY);
    for (std::string& host : membership.hosts()) response.add_hosts(std::move(host));
    response.set_rendezvous_address(membership.rendezvous_address());
  } else {
    response.set_state(v1::EPOCH_STATE_FORMING);
  }
  return response;
}

absl::StatusOr<v1::HeartbeatResponse> JobWorkers::Heartbeat(const v1::HeartbeatRequest& request) {
  v1::HeartbeatResponse response;
  bool failed_now = false;
  {
    JobLock lock(record_.mutex());
    if (record_.deleted()) return record_.DeletedError();
    PENSTOCK_RETURN_IF_ERROR(
        record_.state().membership().Check({request.rank(), request.incarnation(), request.epoch()}));
    const bool failed_before = record_.state().membership().failed();
    TakeHeartbeatLocked(request);
    failed_now = record_.state().membership().failed() && !failed_before;
    response = AnswerHeartbeatLocked(request.rank());
  }
  if (failed_now) readers_.WakeAll();
  return response;
}

void JobWorkers::ExcuseSilence(absl::Duration gap) {
  JobLock lock(record_.mutex());
  heartbeats_.Excuse(gap, record_.services().clock->Now());
}

void JobWorkers::ExpireLost() {
  bool failed_now = false;
  {
    JobLock lock(record_.mutex());
    if (record_.ended()) return;
    const bool failed_before = record_.state().membership().failed();
    ExpireLostLocked();
    failed_now = record_.state().membership().failed() && !failed_before;
  }
  if (failed_now) readers_.WakeAll();
}

absl::Duration JobWorkers::SilenceLocked(uint32_t rank) const {
  return heartbeats_.Silence(rank, record_.services().clock->Now());
}

void JobWorkers::ExpireLostLocked() {
  if (record_.state().finished() || !record_.state().planning_failure().empty()) return;
  const absl::Time now = record_.services().clock->Now();
  for (uint32_t rank = 0; rank < record_.state().ranks(); ++rank) {
    if (!record_.state().membership().IsHeld(rank) || !heartbeats_.IsLost(rank, now)) continue;
    FailLocked(store::v1::FAILURE_KIND_LOST, rank,
               absl::StrFormat("was lost: no heartbeat for %.1f s",
                               absl::ToDoubleSeconds(heartbeats_.Silence(rank, now))));
  }
}

}  // namespace penstock
