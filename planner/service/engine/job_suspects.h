// Batches that may have killed the planner before this one.
//
// A batch that was accepted and has no plan when a planner starts may be what its predecessor died of. So it
// is planned with nothing beside it, and that this was begun is durable first: if the planner dies again, the
// batch is known. One that killed two planners so is not tried a third time: its job fails, and all others go
// on. Thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobSuspects {
 public:
  // `record` must outlive it.
  explicit JobSuspects(JobRecord& record) : record_(record) {}

  // After a restart of the planner.
  void SuspectUnplannedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  bool ContainsLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return tries_.contains(iteration);
  }
  // OK once the planning of the iteration may begin; waits for the disk where it is a suspect. Possible
  // errors: INTERNAL (never again), those of the ticket.
  absl::Status BeginTry(uint64_t iteration, const PlanningTicket& ticket);
  void EndTryLocked(uint64_t iteration, bool planned) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

 private:
  void RecordTriesLocked(uint64_t iteration, uint32_t tries, JobRecord::Committed committed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  // Iterations that an earlier planner left without a plan, and how many planners died in planning them.
  std::map<uint64_t, uint32_t> tries_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
