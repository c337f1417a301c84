// Job: from an accepted batch to a plan in memory.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/checked_plan.h"
#include "planner/service/engine/job.h"
#include "planner/service/engine/planning_room.h"
#include "planner/service/state/loss_weight.h"
#include "planner/service/state/summary.h"

namespace penstock {
namespace {

// Of one job that wait for the pool: enough to keep its threads busy, and no more, so that what is asked for
// next is planned next.
constexpr size_t kMostInPool = 32;
// Plans of so many iterations behind the completed ones are delivered as soon as they can be.
constexpr uint64_t kPlansNeededNow = 2;

}  // namespace

bool Job::NeedsPlanLocked(uint64_t iteration) const {
  return iteration >= state_.first_held() && iteration < durable_batches_ && !planning_.contains(iteration) &&
         !values_.Has(iteration);
}

std::optional<uint64_t> Job::NextToPlanLocked() const {
  if (planner_ == nullptr || stopped_ || deleted_ || !state_.planning_failure().empty()) return std::nullopt;
  for (const uint64_t iteration : wanted_) {
    if (NeedsPlanLocked(iteration)) return iteration;
  }
  const uint64_t completed = state_.progress().completed();
  // The plan that is needed next is made whatever it takes; those after it while there is room.
  const bool room = values_.PlanBytesFrom(completed) < services_.memory->AheadOfOneJob();
  const uint64_t end = room ? durable_batches_ : std::min(durable_batches_, completed + 1);
  for (uint64_t iteration = completed; iteration < end; ++iteration) {
    if (NeedsPlanLocked(iteration)) return iteration;
  }
  return std::nullopt;
}

void Job::PlanMore() {
  while (true) {
    uint64_t iteration = 0;
    int64_t bytes = 0;
    {
      MutexLock lock(&mutex_);
      if (planning_.size() >= kMostInPool) return;
      const std::optional<uint64_t> next = NextToPlanLocked();
      if (!next.has_value()) return;
      if (!services_.pool->TryReserve(PlanningClass::kJobBatch, payer_, 1)) return;  // Tick() tries again
      iteration = *next;
      planning_[iteration] = nullptr;
      bytes = PlanningBytesLocked(iteration);
    }
    PlanningTicketPtr ticket = services_.pool->Run(
        {PlanningClass::kJobBatch, payer_, services_.planning_limit, bytes, id_},
        [self = shared_from_this(), iteration, queued = TimeOfDay()](const PlanningTicket& ticket) {
          self->PlanIteration(iteration, queued, ticket);
        });
    Keep(iteration, std::move(ticket));
  }
}

// So that Delete() finds it, unless it has ended.
void Job::Keep(uint64_t iteration, PlanningTicketPtr ticket) {
  {
    MutexLock lock(&mutex_);
    const auto found = planning_.find(iteration);
    if (found == planning_.end()) return;
    if (!deleted_) {
      found->second = std::move(ticket);
      return;
    }
  }
  services_.pool->Cancel(ticket);
}

int64_t Job::PlanningBytesLocked(uint64_t iteration) const {
  const int64_t most = services_.room.planning_bytes;
  if (alone_.contains(iteration) || suspects_.contains(iteration)) return most;
  const int64_t estimated = values_.planning_bytes(iteration);
  // After a restart: of a size that is not known before it is read.
  return estimated > 0 ? std::min(most, estimated) : most / 4;
}

// From memory, or from the store after a restart: it may have been accepted by a planner with more memory, or
// of an earlier version.
absl::StatusOr<BatchPtr> Job::BatchOf(uint64_t iteration, const BatchPlanner& planner) {
  {
    MutexLock lock(&mutex_);
    if (BatchPtr batch = values_.batch(iteration); batch != nullptr) return batch;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, services_.store->GetBatch(key_, iteration));
  auto batch = std::make_shared<v1::Batch>();
  if (!batch->ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("the stored batch of iteration ", iteration, " cannot be read"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const core::PlanningShape shape, planner.ShapeOf(*batch));
  PENSTOCK_RETURN_IF_ERROR(CheckRoom("batch.samples", shape, services_.room));
  return batch;
}

absl::StatusOr<Job::PlannedBatch> Job::MakePlan(uint64_t iteration, const PlanningTicket& ticket,
                                                absl::Time* made) {
  PENSTOCK_RETURN_IF_ERROR(ticket.status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<const BatchPlanner> planner,
                            PlannerOf(iteration, ticket.stop()));
  PlannedBatch planned;
  PENSTOCK_ASSIGN_OR_RETURN(planned.batch, BatchOf(iteration, *planner));
  absl::StatusOr<v1::Plan> plan = MakeCheckedPlan(*planner, *services_.checker, *planned.batch, ticket.stop(),
                                                  *services_.clock, *services_.observer, made);
  if (!plan.ok()) return ticket.Explain(plan.status());
  planned.figures = FiguresOf(*plan, planner->waiting_share());
  if (WeighsNothing(*planned.batch, *plan)) planned.figures.set_loss_tokens(0);
  if (plan->has_validation() && WeighsNothing(planned.batch->validation(), plan->validation()))
    planned.figures.mutable_validation()->set_loss_tokens(0);
  planned.plan = std::make_shared<const PackedPlan>(*std::move(plan));
  return planned;
}

void Job::PlanIteration(uint64_t iteration, absl::Time queued, const PlanningTicket& ticket) {
  PlanningTimes times = {.queued = queued, .began = TimeOfDay()};
  const absl::Status begun = BeginTry(iteration, ticket);
  absl::StatusOr<PlannedBatch> planned = begun.ok() ? MakePlan(iteration, ticket, &times.made) : begun;
  // Before anybody can be given the plan.
  TellOfTry(iteration, times, planned);
  const absl::Status status = planned.status();
  EndedBatches failed;
  {
    MutexLock lock(&mutex_);
    planning_.erase(iteration);
    EndTryLocked(iteration, status.ok());
    if (stopped_ || deleted_) return;
    if (status.ok()) {
      wanted_.erase(iteration);
      KeepPlanLocked(*std::move(planned));
    } else if (absl::IsUnavailable(status) || absl::IsCancelled(status)) {
      return;  // the store cannot be read now: Tick() tries again
    } else if (absl::IsResourceExhausted(ticket.status()) && alone_.insert(iteration).second) {
      return;  // the planner ran out of memory: Tick() tries again, with nothing beside it
    } else if (IsDoneLocked(iteration)) {
      GiveUpPlanLocked(iteration, status);
    } else {
      FailPlanningLocked(iteration, status);
      NoteEndLocked(iteration, failed);
    }
  }
  TellOfFailures(failed, status);
  readers_.WakeAll();
  PlanMore();
}

void Job::KeepPlanLocked(PlannedBatch planned) {
  const uint64_t iteration = planned.plan->frame().iteration();
  if (iteration < state_.first_held()) return;
  const store::v1::IterationPlanned* before = state_.PlanOf(iteration);
  const bool same = before != nullptr && before->content_hash() == planned.figures.content_hash();
  if (!same && before != nullptr && IsDoneLocked(iteration)) {
    return GiveUpPlanLocked(iteration, absl::FailedPreconditionError(
                                           "this version of the planner makes another one than was run"));
  }
  // Before it is put there: it was made because somebody waits for it.
  const size_t most = services_.memory->OfOneJob();
  values_.Evict(state_.progress().completed(), most - std::min(planned.plan->bytes(), most));
  values_.PutBatch(std::move(planned.batch));
  values_.PutPlan(std::move(planned.plan));
  if (same) return;
  if (before != nullptr) {
    LogWarning("a plan was made anew with another content: the planner was upgraded",
               {{"job", id_}, {"iteration", iteration}});
    // No iteration is run with two contents.
    for (uint32_t rank = 0; rank < state_.ranks(); ++rank) {
      if (sent_[rank] <= iteration || !state_.membership().IsHeld(rank) || state_.membership().failed())
        continue;
      FailWorkerLocked(
          store::v1::FAILURE_KIND_DISAGREED, rank,
          absl::StrCat("has another plan of iteration ", iteration, " than the upgraded planner makes"));
    }
  }
  undelivered_.insert(iteration);
  const bool is_far_ahead = iteration > state_.progress().completed() + kPlansNeededNow;
  store::v1::Event event;
  *event.mutable_iteration_planned() = std::move(planned.figures);
  RecordLocked(
      std::move(event), {},
      [iteration](Job& job) {
        {
          MutexLock lock(&job.mutex_);
          job.undelivered_.erase(iteration);
        }
        job.readers_.WakeAll();
      },
      is_far_ahead ? Urgency::kSoon : Urgency::kNow);
}

bool Job::IsDoneLocked(uint64_t iteration) const { return iteration < state_.progress().completed(); }

// Whoever looks at an iteration that is done does nothing to the job.
void Job::GiveUpPlanLocked(uint64_t iteration, const absl::Status& status) {
  wanted_.erase(iteration);
  lost_plans_[iteration] =
      absl::Status(status.code(), absl::StrCat("iteration: the plan of ", iteration,
                                               ", which is done, cannot be made again: ", status.message()));
  LogWarning("the plan of an iteration that is done cannot be made again",
             {{"job", id_}, {"iteration", iteration}, {"reason", status.ToString()}});
}

void Job::FailPlanningLocked(uint64_t iteration, const absl::Status& status) {
  if (!state_.planning_failure().empty()) return;
  store::v1::Event event;
  event.mutable_planning_failed()->set_reason(
      absl::StrCat("iteration ", iteration, " cannot be planned: ", status.ToString()));
  // A job that was drained is over, whatever becomes of the batches that it had ahead.
  Log(state_.finished() ? LogLevel::kWarning : LogLevel::kError,
      state_.finished() ? "a batch of a finished job is given up" : "job failed",
      {{"job", id_}, {"reason", event.planning_failed().reason()}});
  RecordLocked(std::move(event));
}

}  // namespace penstock
