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
  return iteration >= record_.state().first_held() && iteration < durable_batches_ &&
         !planning_.contains(iteration) && !record_.values().Has(iteration);
}

std::optional<uint64_t> Job::NextToPlanLocked() const {
  if (planner_ == nullptr || record_.ended() || !record_.state().planning_failure().empty())
    return std::nullopt;
  for (const uint64_t iteration : wanted_) {
    if (NeedsPlanLocked(iteration)) return iteration;
  }
  const uint64_t completed = record_.state().progress().completed();
  // The plan that is needed next is made whatever it takes; those after it while there is room.
  const bool room = record_.values().PlanBytesFrom(completed) < record_.services().memory->AheadOfOneJob();
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
      JobLock lock(record_.mutex());
      if (planning_.size() >= kMostInPool) return;
      const std::optional<uint64_t> next = NextToPlanLocked();
      if (!next.has_value()) return;
      if (!record_.TryReserve(PlanningClass::kJobBatch)) return;  // Tick() tries again
      iteration = *next;
      planning_[iteration] = nullptr;
      bytes = PlanningBytesLocked(iteration);
    }
    PlanningTicketPtr ticket =
        record_.Run(PlanningClass::kJobBatch, bytes,
                    [this, iteration, queued = record_.TimeOfDay()](const PlanningTicket& running) {
                      PlanIteration(iteration, queued, running);
                    });
    Keep(iteration, std::move(ticket));
  }
}

// So that Delete() finds it, unless it has ended.
void Job::Keep(uint64_t iteration, PlanningTicketPtr ticket) {
  {
    JobLock lock(record_.mutex());
    const auto found = planning_.find(iteration);
    if (found == planning_.end()) return;
    if (!record_.deleted()) {
      found->second = std::move(ticket);
      return;
    }
  }
  record_.services().pool->Cancel(ticket);
}

int64_t Job::PlanningBytesLocked(uint64_t iteration) const {
  const int64_t most = record_.services().room.planning_bytes;
  if (alone_.contains(iteration) || suspects_.contains(iteration)) return most;
  const int64_t estimated = record_.values().planning_bytes(iteration);
  // After a restart: of a size that is not known before it is read.
  return estimated > 0 ? std::min(most, estimated) : most / 4;
}

// From memory, or from the store after a restart: it may have been accepted by a planner with more memory, or
// of an earlier version.
absl::StatusOr<BatchPtr> Job::BatchOf(uint64_t iteration, const BatchPlanner& planner) {
  {
    JobLock lock(record_.mutex());
    if (BatchPtr batch = record_.values().batch(iteration); batch != nullptr) return batch;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes,
                            record_.services().store->GetBatch(record_.key(), iteration));
  auto batch = std::make_shared<v1::Batch>();
  if (!batch->ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("the stored batch of iteration ", iteration, " cannot be read"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const core::PlanningShape shape, planner.ShapeOf(*batch));
  PENSTOCK_RETURN_IF_ERROR(CheckRoom("batch.samples", shape, record_.services().room));
  return batch;
}

absl::StatusOr<Job::PlannedBatch> Job::MakePlan(uint64_t iteration, const PlanningTicket& ticket,
                                                absl::Time* made) {
  PENSTOCK_RETURN_IF_ERROR(ticket.status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<const BatchPlanner> planner,
                            PlannerOf(iteration, ticket.stop()));
  PlannedBatch planned;
  PENSTOCK_ASSIGN_OR_RETURN(planned.batch, BatchOf(iteration, *planner));
  absl::StatusOr<v1::Plan> plan =
      MakeCheckedPlan(*planner, *record_.services().checker, *planned.batch, ticket.stop(),
                      *record_.services().clock, *record_.services().observer, made);
  if (!plan.ok()) return ticket.Explain(plan.status());
  planned.figures = FiguresOf(*plan, planner->waiting_share());
  if (WeighsNothing(*planned.batch, *plan)) planned.figures.set_loss_tokens(0);
  if (plan->has_validation() && WeighsNothing(planned.batch->validation(), plan->validation()))
    planned.figures.mutable_validation()->set_loss_tokens(0);
  planned.plan = std::make_shared<const PackedPlan>(*std::move(plan));
  return planned;
}

void Job::PlanIteration(uint64_t iteration, absl::Time queued, const PlanningTicket& ticket) {
  PlanningTimes times = {.queued = queued, .began = record_.TimeOfDay()};
  const absl::Status begun = BeginTry(iteration, ticket);
  absl::StatusOr<PlannedBatch> planned = begun.ok() ? MakePlan(iteration, ticket, &times.made) : begun;
  // Before anybody can be given the plan.
  TellOfTry(iteration, times, planned);
  const absl::Status status = planned.status();
  EndedBatches failed;
  {
    JobLock lock(record_.mutex());
    planning_.erase(iteration);
    EndTryLocked(iteration, status.ok());
    if (record_.ended()) return;
    if (status.ok()) {
      wanted_.erase(iteration);
      KeepPlanLocked(*std::move(planned));
    } else if (absl::IsUnavailable(status) || absl::IsCancelled(status)) {
      return;  // the store cannot be read now: Tick() tries again
    } else if (absl::IsResourceExhausted(ticket.status()) && alone_.insert(iteration).second) {
      return;  // the planner ran out of memory: Tick() tries again, with nothing beside it
    } else if (record_.IsDoneLocked(iteration)) {
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
  if (iteration < record_.state().first_held()) return;
  const store::v1::IterationPlanned* before = record_.state().PlanOf(iteration);
  const bool same = before != nullptr && before->content_hash() == planned.figures.content_hash();
  if (!same && before != nullptr && record_.IsDoneLocked(iteration)) {
    return GiveUpPlanLocked(iteration, absl::FailedPreconditionError(
                                           "this version of the planner makes another one than was run"));
  }
  // Before it is put there: it was made because somebody waits for it.
  const size_t most = record_.services().memory->OfOneJob();
  record_.values().Evict(record_.state().progress().completed(),
                         most - std::min(planned.plan->bytes(), most));
  record_.values().PutBatch(std::move(planned.batch));
  record_.values().PutPlan(std::move(planned.plan));
  if (same) return;
  if (before != nullptr) {
    LogWarning("a plan was made anew with another content: the planner was upgraded",
               {{"job", record_.id()}, {"iteration", iteration}});
    // No iteration is run with two contents.
    for (uint32_t rank = 0; rank < record_.state().ranks(); ++rank) {
      if (sent_[rank] <= iteration || !record_.state().membership().IsHeld(rank) ||
          record_.state().membership().failed())
        continue;
      FailWorkerLocked(
          store::v1::FAILURE_KIND_DISAGREED, rank,
          absl::StrCat("has another plan of iteration ", iteration, " than the upgraded planner makes"));
    }
  }
  undelivered_.insert(iteration);
  const bool is_far_ahead = iteration > record_.state().progress().completed() + kPlansNeededNow;
  store::v1::Event event;
  *event.mutable_iteration_planned() = std::move(planned.figures);
  record_.AppendLocked(
      std::move(event), {},
      [this, iteration] {
        {
          JobLock lock(record_.mutex());
          undelivered_.erase(iteration);
        }
        readers_.WakeAll();
      },
      is_far_ahead ? Urgency::kSoon : Urgency::kNow);
}

// Whoever looks at an iteration that is done does nothing to the job.
void Job::GiveUpPlanLocked(uint64_t iteration, const absl::Status& status) {
  wanted_.erase(iteration);
  lost_plans_.erase(lost_plans_.begin(), lost_plans_.lower_bound(record_.state().first_held()));
  lost_plans_[iteration] =
      absl::Status(status.code(), absl::StrCat("iteration: the plan of ", iteration,
                                               ", which is done, cannot be made again: ", status.message()));
  LogWarning("the plan of an iteration that is done cannot be made again",
             {{"job", record_.id()}, {"iteration", iteration}, {"reason", status.ToString()}});
}

void Job::FailPlanningLocked(uint64_t iteration, const absl::Status& status) {
  if (!record_.state().planning_failure().empty()) return;
  store::v1::Event event;
  event.mutable_planning_failed()->set_reason(
      absl::StrCat("iteration ", iteration, " cannot be planned: ", status.ToString()));
  // A job that was drained is over, whatever becomes of the batches that it had ahead.
  Log(record_.state().finished() ? LogLevel::kWarning : LogLevel::kError,
      record_.state().finished() ? "a batch of a finished job is given up" : "job failed",
      {{"job", record_.id()}, {"reason", event.planning_failed().reason()}});
  record_.AppendLocked(std::move(event));
}

}  // namespace penstock
