#include "planner/service/engine/job_planning.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/checked_plan.h"
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

JobPlanning::JobPlanning(JobRecord& record, JobPlanners& planners, JobReaders& readers, JobWorkers& workers,
                         JobTraces& traces)
    : record_(record),
      planners_(planners),
      readers_(readers),
      workers_(workers),
      traces_(traces),
      suspects_(record),
      durable_batches_(record.state().admission().next_iteration()) {}

void JobPlanning::AddDurable(uint64_t end) {
  {
    JobLock lock(record_.mutex());
    durable_batches_ = std::max(durable_batches_, end);
  }
  PlanMore();
}

void JobPlanning::WantLocked(uint64_t iteration) {
  wanted_.ForgetBefore(record_.state().first_held());
  if (!record_.values().Has(iteration)) wanted_.Want(iteration);
}

std::optional<absl::Status> JobPlanning::TakeLossLocked(uint64_t iteration) {
  std::optional<absl::Status> why = wanted_.TakeLoss(iteration);
  return record_.IsDoneLocked(iteration) ? why : std::nullopt;
}

uint64_t JobPlanning::FirstUnplannedLocked() const {
  const uint64_t from = std::max(record_.state().planned_end(), record_.state().progress().completed());
  return planning_.empty() ? from : std::max(from, planning_.rbegin()->first + 1);
}

bool JobPlanning::NeedsPlanLocked(uint64_t iteration) const {
  return iteration >= record_.state().first_held() && iteration < durable_batches_ &&
         !planning_.contains(iteration) && !record_.values().Has(iteration);
}

std::optional<uint64_t> JobPlanning::NextToPlanLocked() const {
  if (!planners_.AreThereLocked() || record_.ended() || !record_.state().planning_failure().empty())
    return std::nullopt;
  for (const uint64_t iteration : wanted_.iterations()) {
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

std::optional<JobPlanning::NextPlan> JobPlanning::ReserveNext() {
  JobLock lock(record_.mutex());
  if (planning_.size() >= kMostInPool) return std::nullopt;
  const std::optional<uint64_t> next = NextToPlanLocked();
  if (!next.has_value()) return std::nullopt;
  // Where there is no place Tick() tries again.
  if (!record_.TryReserve(PlanningClass::kJobBatch)) return std::nullopt;
  planning_[*next] = nullptr;
  return NextPlan{.iteration = *next, .bytes = PlanningBytesLocked(*next)};
}

void JobPlanning::PlanMore() {
  while (const std::optional<NextPlan> next = ReserveNext()) {
    const uint64_t iteration = next->iteration;
    PlanningTicketPtr ticket =
        record_.Run(PlanningClass::kJobBatch, next->bytes,
                    [this, iteration, queued = record_.TimeOfDay()](const PlanningTicket& running) {
                      PlanIteration(iteration, queued, running);
                    });
    KeepTicket(iteration, std::move(ticket));
  }
}

// So that Cancel() finds it, unless it has ended.
void JobPlanning::KeepTicket(uint64_t iteration, PlanningTicketPtr ticket) {
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

void JobPlanning::Cancel() {
  std::vector<PlanningTicketPtr> tickets;
  {
    JobLock lock(record_.mutex());
    for (const auto& [iteration, ticket] : planning_) tickets.push_back(ticket);
  }
  for (const PlanningTicketPtr& ticket : tickets) {
    if (ticket != nullptr) record_.services().pool->Cancel(ticket);
  }
}

int64_t JobPlanning::PlanningBytesLocked(uint64_t iteration) const {
  const int64_t most = record_.services().room.planning_bytes;
  if (alone_.contains(iteration) || suspects_.ContainsLocked(iteration)) return most;
  const int64_t estimated = record_.values().planning_bytes(iteration);
  // After a restart: of a size that is not known before it is read.
  return estimated > 0 ? std::min(most, estimated) : most / 4;
}

// After a restart it comes from the store: it may have been accepted by a planner with more memory, or of an
// earlier version.
absl::StatusOr<BatchPtr> JobPlanning::BatchOf(uint64_t iteration, const BatchPlanner& planner) const {
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

absl::StatusOr<JobPlanning::PlannedBatch> JobPlanning::MakePlan(uint64_t iteration,
                                                                const PlanningTicket& ticket,
                                                                absl::Time* made) {
  PENSTOCK_RETURN_IF_ERROR(ticket.status());
  PENSTOCK_ASSIGN_OR_RETURN(const BatchPlannerPtr planner, planners_.Of(iteration, ticket.stop()));
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

void JobPlanning::PlanIteration(uint64_t iteration, absl::Time queued, const PlanningTicket& ticket) {
  JobTraces::PlanningTimes times = {.queued = queued, .began = record_.TimeOfDay()};
  const absl::Status begun = suspects_.BeginTry(iteration, ticket);
  absl::StatusOr<PlannedBatch> planned = begun.ok() ? MakePlan(iteration, ticket, &times.made) : begun;
  const absl::Status status = planned.status();
  // Before anybody can be given the plan.
  traces_.TellOfTry(iteration, times, status, status.ok() ? &planned->plan->frame() : nullptr);
  JobTraces::EndedBatches failed;
  {
    JobLock lock(record_.mutex());
    planning_.erase(iteration);
    suspects_.EndTryLocked(iteration, status.ok());
    if (record_.ended()) return;
    if (status.ok()) {
      wanted_.NoteMade(iteration);
      KeepPlanLocked(*std::move(planned));
    } else if (absl::IsUnavailable(status) || absl::IsCancelled(status)) {
      return;  // the store cannot be read now: Tick() tries again
    } else if (absl::IsResourceExhausted(ticket.status()) && alone_.insert(iteration).second) {
      return;  // the planner ran out of memory: Tick() tries again, with nothing beside it
    } else if (record_.IsDoneLocked(iteration)) {
      GiveUpPlanLocked(iteration, status);
    } else {
      FailPlanningLocked(iteration, status);
      traces_.NoteEndLocked(iteration, failed);
    }
  }
  traces_.TellOfFailures(failed, status);
  readers_.WakeAll();
  PlanMore();
}

void JobPlanning::KeepPlanLocked(PlannedBatch planned) {
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
    FailRanksWithAnotherPlanLocked(iteration);
  }
  readers_.HoldBackLocked(iteration);
  const bool is_needed_now = iteration <= record_.state().progress().completed() + kPlansNeededNow ||
                             !readers_.streams().AreWorkers();
  store::v1::Event event;
  *event.mutable_iteration_planned() = std::move(planned.figures);
  record_.AppendLocked(
      std::move(event), {},
      [this, iteration] {
        {
          JobLock lock(record_.mutex());
          readers_.ReleaseLocked(iteration);
        }
        readers_.WakeAll();
      },
      is_needed_now ? Urgency::kNow : Urgency::kLater);
}

void JobPlanning::FailRanksWithAnotherPlanLocked(uint64_t iteration) {
  const Membership& membership = record_.state().membership();
  for (uint32_t rank = 0; rank < record_.state().ranks(); ++rank) {
    if (!readers_.WasSentLocked(rank, iteration) || !membership.IsHeld(rank) || membership.failed()) continue;
    workers_.FailLocked(
        store::v1::FAILURE_KIND_DISAGREED, rank,
        absl::StrCat("has another plan of iteration ", iteration, " than the upgraded planner makes"));
  }
}

// Whoever looks at an iteration that is done does nothing to the job.
void JobPlanning::GiveUpPlanLocked(uint64_t iteration, const absl::Status& status) {
  wanted_.ForgetBefore(record_.state().first_held());
  wanted_.NoteLost(
      iteration,
      absl::Status(status.code(), absl::StrCat("iteration: the plan of ", iteration,
                                               ", which is done, cannot be made again: ", status.message())));
  LogWarning("the plan of an iteration that is done cannot be made again",
             {{"job", record_.id()}, {"iteration", iteration}, {"reason", status.ToString()}});
}

void JobPlanning::FailPlanningLocked(uint64_t iteration, const absl::Status& status) {
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
