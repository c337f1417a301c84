// The planning queue of a job: from an accepted batch to a plan in memory.
//
// Whatever brings something to plan, or makes room for it, calls PlanMore: batches that became durable, plans
// that were made or are asked for again, reports, other strategies, Tick. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/engine/job_suspects.h"
#include "planner/service/engine/job_traces.h"
#include "planner/service/engine/job_workers.h"
#include "planner/service/engine/wanted_plans.h"

namespace penstock {

class JobPlanning {
 public:
  // All must outlive it.
  JobPlanning(JobRecord& record, JobPlanners& planners, JobReaders& readers, JobWorkers& workers,
              JobTraces& traces);

  // After a restart of the planner: batches without a plan are planned with care (job_suspects.h).
  void TakeUpBatchesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { suspects_.SuspectUnplannedLocked(); }
  // Batches before it may be planned: they are durable.
  void AddDurable(uint64_t end);
  // Gives the pool what needs a plan, as far as there is room.
  void PlanMore();
  // The job was deleted: whatever is in the pool is stopped.
  void Cancel();

  // Has a plan made that was forgotten, or is not made again yet; PlanMore begins it.
  void WantLocked(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Why the plan of an iteration that is done could not be made again; told once.
  std::optional<absl::Status> TakeLossLocked(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // No iteration from this one on has a plan, or is being planned.
  uint64_t FirstUnplannedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // From memory, or from the store. Possible errors: those of EventStore::GetBatch, DATA_LOSS,
  // INVALID_ARGUMENT (`planner` has no room for it).
  absl::StatusOr<BatchPtr> BatchOf(uint64_t iteration, const BatchPlanner& planner) const;

 private:
  struct PlannedBatch {
    BatchPtr batch;
    PackedPlanPtr plan;
    // Found without the lock: it looks through the whole plan.
    store::v1::IterationPlanned figures;
  };
  // What the pool is given next, and the memory that it takes.
  struct NextPlan {
    uint64_t iteration = 0;
    int64_t bytes = 0;
  };

  // The next iteration that needs a plan in memory and gets one now.
  std::optional<uint64_t> NextToPlanLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  bool NeedsPlanLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  int64_t PlanningBytesLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // With a place in the pool; nothing: there is nothing to plan, or no place.
  std::optional<NextPlan> ReserveNext();
  void KeepTicket(uint64_t iteration, PlanningTicketPtr ticket);
  void PlanIteration(uint64_t iteration, absl::Time queued, const PlanningTicket& ticket);
  // `made`: set to when the plan was made and not yet checked.
  absl::StatusOr<PlannedBatch> MakePlan(uint64_t iteration, const PlanningTicket& ticket, absl::Time* made);
  void KeepPlanLocked(PlannedBatch planned) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // No iteration is run with two contents.
  void FailRanksWithAnotherPlanLocked(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Of an iteration that is done: who asked for its plan is told why there is none.
  void GiveUpPlanLocked(uint64_t iteration, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void FailPlanningLocked(uint64_t iteration, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  JobPlanners& planners_;
  JobReaders& readers_;
  JobWorkers& workers_;
  JobTraces& traces_;
  JobSuspects suspects_;
  // Batches before it are durable.
  uint64_t durable_batches_ ABSL_GUARDED_BY(job_lock);
  // Iterations that are being planned, or wait for the pool.
  std::map<uint64_t, PlanningTicketPtr> planning_ ABSL_GUARDED_BY(job_lock);
  // Iterations that are planned with nothing beside them: the planner ran out of memory before.
  std::set<uint64_t> alone_ ABSL_GUARDED_BY(job_lock);
  WantedPlans wanted_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
