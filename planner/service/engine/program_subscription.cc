#include "planner/service/engine/program_subscription.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job.h"
#include "planner/service/engine/program_messages.h"

namespace penstock {
namespace {

// One without incarnation belongs to no epoch and outlives it. CheckReaderLocked knows whether it is true.
ProgramMessages::Reader ReaderOf(const v1::StreamProgramsRequest& request) {
  return {.rank = request.rank(),
          .is_worker = request.incarnation() != 0,
          .compact_version = request.compact_version()};
}

}  // namespace

std::unique_ptr<ProgramSubscription> Job::Subscribe(const v1::StreamProgramsRequest& request,
                                                    WakeList::Wake wake) {
  return std::make_unique<ProgramSubscription>(std::static_pointer_cast<Job>(record_.KeepJob()), request,
                                               std::move(wake));
}

ProgramSubscription::ProgramSubscription(std::shared_ptr<Job> job, const v1::StreamProgramsRequest& request,
                                         WakeList::Wake wake)
    : job_(std::move(job)),
      request_(request),
      place_(job_->messages_.OpenStream(ReaderOf(request))),
      next_iteration_(request.from_iteration()),
      reader_id_(place_.ok() ? std::optional(job_->stream_readers_.Add(request)) : std::nullopt),
      wake_id_(job_->readers_.Add(std::move(wake))) {}

ProgramSubscription::~ProgramSubscription() {
  job_->readers_.Remove(wake_id_);
  if (reader_id_.has_value()) job_->stream_readers_.Remove(*reader_id_);
}

ProgramSubscription::Item ProgramSubscription::Next() {
  if (!place_.ok()) return place_.status();
  Item item = job_->NextProgram(request_, next_iteration_, &told_);
  if (std::holds_alternative<ProgramBytes>(item)) ++next_iteration_;
  return item;
}

absl::Status Job::CheckReaderLocked(const v1::StreamProgramsRequest& request) const {
  if (record_.deleted()) return record_.DeletedError();
  if (request.rank() >= record_.state().ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", request.rank(), ", but job '", record_.id(),
                                                   "' has ", record_.state().ranks(), " ranks"));
  }
  if (record_.stopped()) return JobRecord::StoppedError();
  // A worker may have left a finished job while its stream is open.
  if (record_.state().finished()) return absl::OkStatus();
  if (request.incarnation() != 0 || request.epoch() != 0) {
    PENSTOCK_RETURN_IF_ERROR(
        record_.state().membership().Check({request.rank(), request.incarnation(), request.epoch()}));
    if (record_.state().membership().failed())
      return absl::FailedPreconditionError(record_.state().membership().failure());
  }
  if (!preparation_failure_.ok()) return preparation_failure_;
  if (!record_.state().planning_failure().empty())
    return absl::FailedPreconditionError(record_.state().planning_failure());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Job::ProfileDurations(const BatchPlanner& planner,
                                                           const v1::Batch& batch, const PackedPlan& plan,
                                                           uint32_t rank) const {
  const bool has_their_costs = plan.frame().profile_version() == record_.spec().profile().version() &&
                               !planner.devices_have_other_costs();
  if (!record_.spec().simulated() || has_their_costs) return std::vector<int64_t>();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan of_rank, plan.PlanFor(static_cast<int>(rank)));
  return planner.Durations(batch, of_rank, rank);
}

NewTopologies Job::NewTopologiesLocked(const PackedPlan& plan, const std::set<uint32_t>& told) const {
  const uint32_t registered = record_.state().strategies().registered();
  const std::vector<v1::Topology>& all = record_.state().topologies();
  const auto of = [&](uint32_t strategy) -> std::optional<v1::Topology> {
    if (strategy < registered || told.contains(strategy) || strategy >= all.size()) return std::nullopt;
    return all[strategy];
  };
  NewTopologies topologies;
  if (registered == 0) return topologies;
  const uint32_t strategy = plan.frame().strategy();
  topologies.of_plan = of(strategy);
  if (plan.validation() == nullptr || plan.validation()->frame().strategy() == strategy) return topologies;
  topologies.of_validation = of(plan.validation()->frame().strategy());
  return topologies;
}

ProgramSubscription::Item Job::NextProgram(const v1::StreamProgramsRequest& request, uint64_t iteration,
                                           std::set<uint32_t>* told) {
  const absl::Time began = record_.TimeOfDay();
  NewTopologies topologies;
  BatchPtr batch;
  PackedPlanPtr plan;
  std::shared_ptr<const BatchPlanner> planner;
  {
    JobLock lock(record_.mutex());
    const auto of_iteration = planners_.find(record_.state().strategies().NumbersOf(iteration));
    planner = of_iteration != planners_.end() ? of_iteration->second : planner_;
    if (absl::Status status = CheckReaderLocked(request); !status.ok()) return status;
    if (record_.state().finished() && iteration >= record_.state().admission().next_iteration())
      return absl::OkStatus();
    if (iteration < record_.state().first_held()) {
      return absl::OutOfRangeError(absl::StrCat("from_iteration: iteration ", iteration,
                                                " is no longer held, the first is ",
                                                record_.state().first_held()));
    }
    const uint64_t end = std::max(record_.state().admission().next_iteration(),
                                  record_.state().progress().completed() + record_.state().window());
    if (iteration > end && request.incarnation() != 0) {
      return absl::AbortedError(absl::StrCat("iteration ", iteration, " is beyond ", end,
                                             ", where this planner is: its store was restored from a backup; "
                                             "register again with a new incarnation"));
    }
    if (iteration > end) {
      return absl::OutOfRangeError(
          absl::StrCat("from_iteration: iteration ", iteration,
                       " is beyond what this job may be given now: ask from at most ", end));
    }
    // Nothing more will come: a job that was drained may be finished and still find that a batch has no plan.
    if (!record_.state().IsPlanned(iteration) && !record_.state().planning_failure().empty()) {
      return absl::FailedPreconditionError(record_.state().planning_failure());
    }
    if (!record_.state().IsPlanned(iteration) || undelivered_.contains(iteration))
      return ProgramSubscription::Pending{};
    batch = record_.values().batch(iteration);
    plan = record_.values().plan(iteration);
    if (plan == nullptr || batch == nullptr) {
      WantPlanLocked(iteration);
    } else {
      if (request.incarnation() != 0) sent_[request.rank()] = std::max(sent_[request.rank()], iteration + 1);
      if (request.takes_new_strategies()) topologies = NewTopologiesLocked(*plan, *told);
    }
  }
  if (plan == nullptr || batch == nullptr) {
    PlanMore();
    return ProgramSubscription::Pending{};
  }
  absl::StatusOr<std::vector<int64_t>> durations = ProfileDurations(*planner, *batch, *plan, request.rank());
  if (!durations.ok()) return durations.status();
  absl::StatusOr<ProgramBytes> message =
      messages_.Message(*batch, *plan, ReaderOf(request), *durations, topologies);
  if (!message.ok()) return message.status();
  if (topologies.of_plan.has_value()) told->insert(plan->frame().strategy());
  if (topologies.of_validation.has_value()) told->insert(plan->validation()->frame().strategy());
  record_.services().observer->OnDelivered({.job_id = record_.id(),
                                            .iteration = iteration,
                                            .rank = request.rank(),
                                            .began = began,
                                            .ended = record_.TimeOfDay(),
                                            .bytes = (*message)->size()});
  return *std::move(message);
}

}  // namespace penstock
