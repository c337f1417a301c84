// Job: its planner, which may take seconds to make.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job.h"

namespace penstock {

absl::Status Job::CheckPreparedLocked() const {
  if (planner_ != nullptr) return absl::OkStatus();
  if (!preparation_failure_.ok()) return preparation_failure_;
  return absl::UnavailableError(
      absl::StrCat("job '", id_, "' is being prepared (its stages are chosen); try again in a moment"));
}

absl::StatusOr<std::shared_ptr<const BatchPlanner>> Job::Planner() const {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckPreparedLocked(); !status.ok()) return status;
  return planner_;
}

uint64_t Job::WhenPrepared(Prepared prepared) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (deleted_) {
      status = DeletedError();
    } else if (stopped_) {
      status = absl::UnavailableError("the planner stops; try again");
    } else if (planner_ == nullptr && preparation_failure_.ok() && !state_.finished()) {
      await_preparation_[++last_waiter_] = std::move(prepared);
      return last_waiter_;
    } else {
      status = preparation_failure_;
    }
  }
  prepared(status);
  return 0;
}

bool Job::StopWaiting(uint64_t waiter) {
  MutexLock lock(&mutex_);
  if (await_preparation_.erase(waiter) == 0) return false;
  return await_preparation_.empty() && planner_ == nullptr && !state_.is_prepared() && !deleted_;
}

// Several layouts of stages are planned at a time, as many as there is room for.
int64_t Job::PreparationBytes(const v1::JobSpec& spec) const {
  const absl::StatusOr<core::PlanningShape> shape = services_.planners->ShapeOf(spec, nullptr);
  if (!shape.ok() || shape->samples == 0) return 0;
  const int64_t most = services_.room.planning_bytes;
  const int64_t one = std::min(most, core::FootprintOf(*shape).planning_bytes);
  return std::min(most / services_.preparation_threads, one) * services_.preparation_threads;
}

void Job::Prepare() {
  {
    MutexLock lock(&mutex_);
    if (planner_ != nullptr || preparing_ || !preparation_failure_.ok() || stopped_ || deleted_) return;
    if (!services_.pool->TryReserve(PlanningClass::kPreparation, payer_, 1)) return;  // Tick() tries again
    preparing_ = true;
  }
  PlanningTicketPtr ticket = services_.pool->Run(
      {PlanningClass::kPreparation, payer_, services_.planning_limit, PreparationBytes(spec_), id_},
      [self = shared_from_this()](const PlanningTicket& ticket) { self->PreparePlanners(ticket); });
  {
    MutexLock lock(&mutex_);
    if (!preparing_) return;
    if (!deleted_) {
      preparation_ = std::move(ticket);
      return;
    }
  }
  services_.pool->Cancel(ticket);
}

void Job::PreparePlanners(const PlanningTicket& ticket) {
  if (!ticket.status().ok()) return KeepPlanners(ticket.status());
  absl::StatusOr<PreparedPlanners> planners = MakePlanners(ticket.stop());
  if (!planners.ok()) return KeepPlanners(ticket.Explain(planners.status()));
  KeepPlanners(std::move(planners));
}

absl::StatusOr<Job::PreparedPlanners> Job::MakePlanners(core::StopToken stop) const {
  v1::JobSpec spec;
  std::vector<v1::Topology> topologies;
  std::set<StrategyChanges::Numbers> all;
  StrategyChanges::Numbers now;
  std::optional<v1::CostProfile> revised;
  {
    MutexLock lock(&mutex_);
    spec = SpecLocked(spec_.profile());
    topologies = state_.topologies();
    all = state_.strategies().HeldFrom(state_.first_held());
    now = state_.strategies().now();
    if (state_.LastCosts() != nullptr) revised = state_.LastCosts()->profile();
  }
  PreparedPlanners planners;
  for (const StrategyChanges::Numbers& numbers : all) {
    PENSTOCK_ASSIGN_OR_RETURN(planners.registered[numbers],
                              services_.planners->Create(spec, topologies, numbers, stop));
  }
  if (!revised.has_value()) return planners;
  *spec.mutable_profile() = *std::move(revised);
  PENSTOCK_ASSIGN_OR_RETURN(planners.revised[RevisedCosts(spec.profile().version(), now)],
                            services_.planners->Create(spec, topologies, now, stop));
  return planners;
}

void Job::KeepPlanners(absl::StatusOr<PreparedPlanners> planners) {
  std::map<uint64_t, Prepared> waiting;
  const absl::Status status = planners.status();
  {
    MutexLock lock(&mutex_);
    preparing_ = false;
    preparation_ = nullptr;
    if (deleted_ || (stopped_ && !status.ok())) return;
    if (status.ok()) {
      planners_ = std::move(planners->registered);
      revised_planners_ = std::move(planners->revised);
      planner_ = planners_.at(state_.strategies().now());
      if (!state_.is_prepared()) {
        store::v1::Event event;
        const std::vector<v1::Topology> topologies = planner_->Topologies();
        store::v1::JobPrepared& prepared = *event.mutable_job_prepared();
        *prepared.mutable_topology() = topologies.front();
        prepared.mutable_other_topologies()->Assign(topologies.begin() + 1, topologies.end());
        RecordLocked(std::move(event));
      }
    } else {
      preparation_failure_ = status;
      LogError("a job cannot be prepared", {{"job", id_}, {"reason", status.ToString()}});
    }
    waiting.swap(await_preparation_);
  }
  for (const auto& [waiter, prepared] : waiting) prepared(status);
  readers_.WakeAll();
  PlanMore();
}

}  // namespace penstock
