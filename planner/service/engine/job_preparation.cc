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
  return absl::UnavailableError(absl::StrCat(
      "job '", record_.id(), "' is being prepared (its stages are chosen); try again in a moment"));
}

absl::StatusOr<std::shared_ptr<const BatchPlanner>> Job::Planner() const {
  JobLock lock(record_.mutex());
  if (absl::Status status = CheckPreparedLocked(); !status.ok()) return status;
  return planner_;
}

uint64_t Job::WhenPrepared(Prepared prepared) {
  absl::Status status;
  {
    JobLock lock(record_.mutex());
    if (record_.deleted()) {
      status = record_.DeletedError();
    } else if (record_.stopped()) {
      status = JobRecord::StoppedError();
    } else if (planner_ == nullptr && preparation_failure_.ok() && !record_.state().finished()) {
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
  JobLock lock(record_.mutex());
  if (await_preparation_.erase(waiter) == 0) return false;
  return await_preparation_.empty() && planner_ == nullptr && !record_.state().is_prepared() &&
         !record_.deleted();
}

// Several layouts of stages are planned at a time, as many as there is room for.
int64_t Job::PreparationBytes(const v1::JobSpec& spec) const {
  const absl::StatusOr<core::PlanningShape> shape = record_.services().planners->ShapeOf(spec, nullptr);
  if (!shape.ok() || shape->samples == 0) return 0;
  const int64_t most = record_.services().room.planning_bytes;
  const int64_t one = std::min(most, core::FootprintOf(*shape).planning_bytes);
  return std::min(most / record_.services().preparation_threads, one) *
         record_.services().preparation_threads;
}

void Job::Prepare() {
  {
    JobLock lock(record_.mutex());
    if (planner_ != nullptr || preparing_ || !preparation_failure_.ok() || record_.ended()) return;
    if (!record_.TryReserve(PlanningClass::kPreparation)) return;  // Tick() tries again
    preparing_ = true;
  }
  PlanningTicketPtr ticket = record_.Run(PlanningClass::kPreparation, PreparationBytes(record_.spec()),
                                         [this](const PlanningTicket& running) { PreparePlanners(running); });
  {
    JobLock lock(record_.mutex());
    if (!preparing_) return;
    if (!record_.deleted()) {
      preparation_ = std::move(ticket);
      return;
    }
  }
  record_.services().pool->Cancel(ticket);
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
    JobLock lock(record_.mutex());
    spec = record_.SpecLocked(record_.spec().profile());
    topologies = record_.state().topologies();
    all = record_.state().strategies().HeldFrom(record_.state().first_held());
    now = record_.state().strategies().now();
    if (record_.state().LastCosts() != nullptr) revised = record_.state().LastCosts()->profile();
  }
  PreparedPlanners planners;
  for (const StrategyChanges::Numbers& numbers : all) {
    PENSTOCK_ASSIGN_OR_RETURN(planners.registered[numbers],
                              record_.services().planners->Create(spec, topologies, numbers, stop));
  }
  if (!revised.has_value()) return planners;
  *spec.mutable_profile() = *std::move(revised);
  PENSTOCK_ASSIGN_OR_RETURN(planners.revised[RevisedCosts(spec.profile().version(), now)],
                            record_.services().planners->Create(spec, topologies, now, stop));
  return planners;
}

void Job::KeepPlanners(absl::StatusOr<PreparedPlanners> planners) {
  std::map<uint64_t, Prepared> waiting;
  const absl::Status status = planners.status();
  {
    JobLock lock(record_.mutex());
    preparing_ = false;
    preparation_ = nullptr;
    if (record_.deleted() || (record_.stopped() && !status.ok())) return;
    if (status.ok()) {
      planners_ = std::move(planners->registered);
      revised_planners_ = std::move(planners->revised);
      planner_ = planners_.at(record_.state().strategies().now());
      if (!record_.state().is_prepared()) {
        store::v1::Event event;
        const std::vector<v1::Topology> topologies = planner_->Topologies();
        store::v1::JobPrepared& prepared = *event.mutable_job_prepared();
        *prepared.mutable_topology() = topologies.front();
        prepared.mutable_other_topologies()->Assign(topologies.begin() + 1, topologies.end());
        record_.AppendLocked(std::move(event));
      }
    } else {
      preparation_failure_ = status;
      LogError("a job cannot be prepared", {{"job", record_.id()}, {"reason", status.ToString()}});
    }
    waiting.swap(await_preparation_);
  }
  for (const auto& [waiter, prepared] : waiting) prepared(status);
  readers_.WakeAll();
  PlanMore();
}

}  // namespace penstock
