// The preparation of a job: its planners, which may take seconds to make, as stages are chosen where the job
// leaves them to the planner. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

// What choosing the stages of such a job takes; 0: not known, or nothing.
int64_t PreparationBytes(const JobServices& services, const v1::JobSpec& spec);

class JobPreparation {
 public:
  // Called once the job has a planner, or with why it gets none: then the job is of no use.
  using Prepared = std::function<void(const absl::Status&)>;

  // All must outlive it.
  JobPreparation(JobRecord& record, JobPlanners& planners, JobReaders& readers, JobPlanning& planning)
      : record_(record), planners_(planners), readers_(readers), planning_(planning) {}

  // See Job.
  void Prepare();
  uint64_t WhenPrepared(Prepared prepared);
  bool StopWaiting(uint64_t waiter);

  // The job was stopped or deleted: whoever waits is told why.
  void TellWaiting(const absl::Status& why);
  // The job was deleted: nothing is prepared any more.
  void Cancel();

  // It is being prepared, or somebody waits for that.
  bool IsWantedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return preparing_ || !waiting_.empty();
  }

 private:
  void Run(const PlanningTicket& ticket);
  absl::StatusOr<JobPlanners::Prepared> MakePlanners(core::StopToken stop) const;
  void Keep(absl::StatusOr<JobPlanners::Prepared> planners);
  void RecordStagesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  JobPlanners& planners_;
  JobReaders& readers_;
  JobPlanning& planning_;
  bool preparing_ ABSL_GUARDED_BY(job_lock) = false;
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(job_lock);
  std::map<uint64_t, Prepared> waiting_ ABSL_GUARDED_BY(job_lock);
  uint64_t last_waiter_ ABSL_GUARDED_BY(job_lock) = 0;
};

}  // namespace penstock
