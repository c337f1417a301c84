// Job: its planner, which may take seconds to make.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
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

void Job::WhenPrepared(Prepared prepared) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (deleted_) {
      status = DeletedError();
    } else if (stopped_) {
      status = absl::UnavailableError("the planner stops; try again");
    } else if (planner_ == nullptr && preparation_failure_.ok() && !state_.finished()) {
      await_preparation_.push_back(std::move(prepared));
      return;
    } else {
      status = preparation_failure_;
    }
  }
  prepared(status);
}

void Job::Prepare() {
  {
    MutexLock lock(&mutex_);
    if (planner_ != nullptr || preparing_ || !preparation_failure_.ok() || stopped_ || deleted_) return;
    if (!services_.pool->TryReserve(PlanningClass::kPreparation, id_, 1)) return;  // Tick() tries again
    preparing_ = true;
  }
  services_.pool->Run(
      {PlanningClass::kPreparation, id_, services_.planning_limit},
      [self = shared_from_this()](const PlanningTicket& ticket) { self->MakePlanner(ticket); });
}

void Job::MakePlanner(const PlanningTicket& ticket) {
  if (!ticket.status().ok()) return KeepPlanner(ticket.status());
  std::optional<v1::Topology> topology;
  {
    MutexLock lock(&mutex_);
    topology = state_.topology();
  }
  absl::StatusOr<std::unique_ptr<BatchPlanner>> planner =
      services_.planners->Create(spec_, topology.has_value() ? &*topology : nullptr, ticket.stop());
  if (!planner.ok()) return KeepPlanner(ticket.Explain(planner.status()));
  KeepPlanner(std::move(planner));
}

void Job::KeepPlanner(absl::StatusOr<std::unique_ptr<BatchPlanner>> planner) {
  std::vector<Prepared> waiting;
  const absl::Status status = planner.status();
  {
    MutexLock lock(&mutex_);
    preparing_ = false;
    if (deleted_ || (stopped_ && !status.ok())) return;
    if (status.ok()) {
      planner_ = *std::move(planner);
      if (!state_.topology().has_value()) {
        store::v1::Event event;
        *event.mutable_job_prepared()->mutable_topology() = planner_->Topology();
        RecordLocked(std::move(event));
      }
    } else {
      preparation_failure_ = status;
      LogError("a job cannot be prepared", {{"job", id_}, {"reason", status.ToString()}});
    }
    waiting.swap(await_preparation_);
  }
  for (const Prepared& prepared : waiting) prepared(status);
  readers_.WakeAll();
  PlanMore();
}

}  // namespace penstock
