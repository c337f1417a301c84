#include "planner/service/engine/job_preparation.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/logging/logging.h"
#include "common/status/status_macros.h"

namespace penstock {

// Several layouts of stages are planned at a time, as many as there is room for.
int64_t PreparationBytes(const JobServices& services, const v1::JobSpec& spec) {
  const absl::StatusOr<core::PlanningShape> shape = services.planners->ShapeOf(spec, nullptr);
  if (!shape.ok() || shape->samples == 0) return 0;
  const int64_t most = services.room.planning_bytes;
  const int64_t one = std::min(most, core::FootprintOf(*shape).planning_bytes);
  return std::min(most / services.preparation_threads, one) * services.preparation_threads;
}

uint64_t JobPreparation::WhenPrepared(Prepared prepared) {
  absl::Status status;
  {
    JobLock lock(record_.mutex());
    if (record_.deleted()) {
      status = record_.DeletedError();
    } else if (record_.stopped()) {
      status = JobRecord::StoppedError();
    } else if (!planners_.AreThereLocked() && planners_.failure().ok() && !record_.state().finished()) {
      waiting_[++last_waiter_] = std::move(prepared);
      return last_waiter_;
    } else {
      status = planners_.failure();
    }
  }
  prepared(status);
  return 0;
}

bool JobPreparation::StopWaiting(uint64_t waiter) {
  JobLock lock(record_.mutex());
  if (waiting_.erase(waiter) == 0) return false;
  return waiting_.empty() && !planners_.AreThereLocked() && !record_.state().is_prepared() &&
         !record_.deleted();
}

void JobPreparation::Prepare() {
  {
    JobLock lock(record_.mutex());
    if (planners_.AreThereLocked() || preparing_ || !planners_.failure().ok() || record_.ended()) return;
    if (!record_.TryReserve(PlanningClass::kPreparation)) return;  // Tick() tries again
    preparing_ = true;
  }
  PlanningTicketPtr ticket =
      record_.Run(PlanningClass::kPreparation, PreparationBytes(record_.services(), record_.spec()),
                  [this](const PlanningTicket& running) { Run(running); });
  {
    JobLock lock(record_.mutex());
    if (!preparing_) return;
    if (!record_.deleted()) {
      ticket_ = std::move(ticket);
      return;
    }
  }
  record_.services().pool->Cancel(ticket);
}

void JobPreparation::Run(const PlanningTicket& ticket) {
  if (!ticket.status().ok()) return Keep(ticket.status());
  absl::StatusOr<JobPlanners::Prepared> planners = MakePlanners(ticket.stop());
  if (!planners.ok()) return Keep(ticket.Explain(planners.status()));
  Keep(std::move(planners));
}

absl::StatusOr<JobPlanners::Prepared> JobPreparation::MakePlanners(core::StopToken stop) const {
  v1::JobSpec spec;
  std::vector<v1::Topology> topologies;
  std::set<StrategyChanges::Numbers> all;
  StrategyChanges::Numbers now;
  std::optional<v1::CostProfile> revised;
  {
    JobLock lock(record_.mutex());
    spec = record_.SpecLocked(record_.spec().profile());
    topologies = record_.state().topologies();
    all = record_.state().strategies().HeldFrom(record_.state().first_held());
    now = record_.state().strategies().now();
    if (record_.state().LastCosts() != nullptr) revised = record_.state().LastCosts()->profile();
  }
  JobPlanners::Prepared planners;
  for (const StrategyChanges::Numbers& numbers : all) {
    PENSTOCK_ASSIGN_OR_RETURN(planners.registered[numbers],
                              record_.services().planners->Create(spec, topologies, numbers, stop));
  }
  if (!revised.has_value()) return planners;
  *spec.mutable_profile() = *std::move(revised);
  PENSTOCK_ASSIGN_OR_RETURN(planners.revised[JobPlanners::RevisedCosts(spec.profile().version(), now)],
                            record_.services().planners->Create(spec, topologies, now, stop));
  return planners;
}

void JobPreparation::RecordStagesLocked() {
  const std::vector<v1::Topology> topologies = planners_.NewestLocked().registered->Topologies();
  store::v1::Event event;
  store::v1::JobPrepared& prepared = *event.mutable_job_prepared();
  *prepared.mutable_topology() = topologies.front();
  prepared.mutable_other_topologies()->Assign(topologies.begin() + 1, topologies.end());
  record_.AppendLocked(std::move(event));
}

void JobPreparation::Keep(absl::StatusOr<JobPlanners::Prepared> planners) {
  std::map<uint64_t, Prepared> waiting;
  const absl::Status status = planners.status();
  {
    JobLock lock(record_.mutex());
    preparing_ = false;
    ticket_ = nullptr;
    if (record_.deleted() || (record_.stopped() && !status.ok())) return;
    if (status.ok()) {
      planners_.PrepareLocked(*std::move(planners));
      if (!record_.state().is_prepared()) RecordStagesLocked();
    } else {
      planners_.FailLocked(status);
      LogError("a job cannot be prepared", {{"job", record_.id()}, {"reason", status.ToString()}});
    }
    waiting.swap(waiting_);
  }
  for (const auto& [waiter, prepared] : waiting) prepared(status);
  readers_.WakeAll();
  planning_.PlanMore();
}

void JobPreparation::TellWaiting(const absl::Status& why) {
  std::map<uint64_t, Prepared> waiting;
  {
    JobLock lock(record_.mutex());
    waiting.swap(waiting_);
  }
  for (const auto& [waiter, prepared] : waiting) prepared(why);
}

void JobPreparation::Cancel() {
  PlanningTicketPtr ticket;
  {
    JobLock lock(record_.mutex());
    ticket = std::move(ticket_);
  }
  if (ticket != nullptr) record_.services().pool->Cancel(ticket);
}

}  // namespace penstock
