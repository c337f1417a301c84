// Where the time of a job's last iterations went, found every so often while it trains.
//
// Not part of the job's events: it is made anew from what ranks report to the planner that serves the job.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/batch_planner.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobDiagnoses {
 public:
  // `record` must outlive it.
  explicit JobDiagnoses(JobRecord& record) : record_(record) {}

  // Looks at the last iterations when it is time; returns at once. Where the pool has no place, it is time
  // again with the next iteration.
  void LookIfDue();
  // The job was stopped or deleted.
  void Cancel();

  const std::optional<v1::JobDiagnosis>& last() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return last_;
  }

 private:
  bool IsDueLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // The last that are complete, as far as they are in memory.
  std::vector<CostedIteration> LastMeasuredLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // With a place in the pool; empty: it is not time, or there is no place.
  std::vector<CostedIteration> ReserveIfDue();
  void Look(const std::vector<CostedIteration>& iterations, const PlanningTicket& ticket);

  JobRecord& record_;
  // When it was begun last, and with how many iterations.
  absl::Time begun_ ABSL_GUARDED_BY(job_lock) = absl::InfinitePast();
  uint64_t completed_ ABSL_GUARDED_BY(job_lock) = 0;
  bool looks_ ABSL_GUARDED_BY(job_lock) = false;
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(job_lock);
  std::optional<v1::JobDiagnosis> last_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
