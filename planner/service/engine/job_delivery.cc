#include "planner/service/engine/job_delivery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// One without incarnation belongs to no epoch and outlives it. CheckReaderLocked knows whether it is true.
ProgramMessages::Reader ReaderOf(const v1::StreamProgramsRequest& request) {
  return {.rank = request.rank(),
          .is_worker = request.incarnation() != 0,
          .compact_version = request.compact_version()};
}

}  // namespace

JobDelivery::JobDelivery(JobRecord& record, const JobPlanners& planners, JobReaders& readers,
                         JobPlanning& planning)
    : record_(record),
      planners_(planners),
      readers_(readers),
      planning_(planning),
      messages_(record.services().streams, record.services().quotas, record.payer(),
                record.services().message_bytes) {}

std::unique_ptr<ProgramSubscription> JobDelivery::Subscribe(const v1::StreamProgramsRequest& request,
                                                            WakeList::Wake wake) {
  return std::make_unique<ProgramSubscription>(std::shared_ptr<JobDelivery>(record_.KeepJob(), this), request,
                                               std::move(wake));
}

absl::StatusOr<std::shared_ptr<void>> JobDelivery::OpenStream(const v1::StreamProgramsRequest& request) {
  return messages_.OpenStream(ReaderOf(request));
}

absl::Status JobDelivery::CheckReaderLocked(const v1::StreamProgramsRequest& request) const {
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
  if (!planners_.failure().ok()) return planners_.failure();
  if (!record_.state().planning_failure().empty())
    return absl::FailedPreconditionError(record_.state().planning_failure());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> JobDelivery::ProfileDurations(const BatchPlanner& planner,
                                                                   const v1::Batch& batch,
                                                                   const PackedPlan& plan,
                                                                   uint32_t rank) const {
  const bool has_their_costs = plan.frame().profile_version() == record_.spec().profile().version() &&
                               !planner.devices_have_other_costs();
  if (!record_.spec().simulated() || has_their_costs) return std::vector<int64_t>();
  return planner.Durations(batch, plan, rank);
}

NewTopologies JobDelivery::NewTopologiesLocked(const PackedPlan& plan, const std::set<uint32_t>& told) const {
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

std::optional<absl::Status> JobDelivery::EndBeforeLocked(const v1::StreamProgramsRequest& request,
                                                         uint64_t iteration) const {
  if (absl::Status status = CheckReaderLocked(request); !status.ok()) return status;
  const JobState& state = record_.state();
  if (state.finished() && iteration >= state.admission().next_iteration()) return absl::OkStatus();
  if (iteration < state.first_held()) {
    return absl::OutOfRangeError(absl::StrCat("from_iteration: iteration ", iteration,
                                              " is no longer held, the first is ", state.first_held()));
  }
  const uint64_t end =
      std::max(state.admission().next_iteration(), state.progress().completed() + state.window());
  if (iteration > end && request.incarnation() != 0) {
    return absl::AbortedError(absl::StrCat("iteration ", iteration, " is beyond ", end,
                                           ", where this planner is: its store was restored from a backup; "
                                           "register again with a new incarnation"));
  }
  if (iteration > end) {
    return absl::OutOfRangeError(absl::StrCat("from_iteration: iteration ", iteration,
                                              " is beyond what this job may be given now: ask from at most ",
                                              end));
  }
  // Nothing more will come: a job that was drained may be finished and still find that a batch has no plan.
  if (!state.IsPlanned(iteration) && !state.planning_failure().empty())
    return absl::FailedPreconditionError(state.planning_failure());
  return std::nullopt;
}

JobDelivery::Values JobDelivery::TakeLocked(const v1::StreamProgramsRequest& request, uint64_t iteration,
                                            const std::set<uint32_t>& told) {
  Values values = {.batch = record_.values().batch(iteration),
                   .plan = record_.values().plan(iteration),
                   .planner = planners_.RegisteredLocked(iteration),
                   .topologies = {}};
  if (!values.are_there()) {
    planning_.WantLocked(iteration);
    return values;
  }
  if (request.incarnation() != 0) readers_.NoteSentLocked(request.rank(), iteration);
  if (request.takes_new_strategies()) values.topologies = NewTopologiesLocked(*values.plan, told);
  return values;
}

ProgramSubscription::Item JobDelivery::Next(const v1::StreamProgramsRequest& request, uint64_t iteration,
                                            std::set<uint32_t>* told) {
  const absl::Time began = record_.TimeOfDay();
  Values values;
  {
    JobLock lock(record_.mutex());
    if (std::optional<absl::Status> end = EndBeforeLocked(request, iteration); end.has_value())
      return *std::move(end);
    if (!record_.state().IsPlanned(iteration) || readers_.IsHeldBackLocked(iteration))
      return ProgramSubscription::Pending{};
    values = TakeLocked(request, iteration, *told);
  }
  if (!values.are_there()) {
    planning_.PlanMore();
    return ProgramSubscription::Pending{};
  }
  absl::StatusOr<std::vector<int64_t>> durations =
      ProfileDurations(*values.planner, *values.batch, *values.plan, request.rank());
  if (!durations.ok()) return durations.status();
  absl::StatusOr<ProgramBytes> message =
      messages_.Message(*values.batch, *values.plan, ReaderOf(request), *durations, values.topologies);
  if (!message.ok()) return message.status();
  if (values.topologies.of_plan.has_value()) told->insert(values.plan->frame().strategy());
  if (values.topologies.of_validation.has_value())
    told->insert(values.plan->validation()->frame().strategy());
  record_.services().observer->OnDelivered({.job_id = record_.id(),
                                            .iteration = iteration,
                                            .rank = request.rank(),
                                            .began = began,
                                            .ended = record_.TimeOfDay(),
                                            .bytes = (*message)->size()});
  return *std::move(message);
}

}  // namespace penstock
