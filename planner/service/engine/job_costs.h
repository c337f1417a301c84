// The costs of a job, which follow what its ranks measure. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobCosts {
 public:
  // All must outlive it.
  JobCosts(JobRecord& record, JobPlanners& planners, const JobPlanning& planning)
      : record_(record), planners_(planners), planning_(planning) {}

  // Fits costs to what was measured, once there is enough of it that is new; in the pool.
  void Recalibrate();
  // The job was deleted: no fit goes on.
  void Cancel();
  // Iterations that have no plan yet are planned with the costs that the job was registered with again.
  void TakeBackLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

 private:
  // What costs are fitted to, and the job as it was then.
  struct Fit {
    std::vector<HeldIteration> iterations;
    // Before this iteration.
    uint64_t measured_before = 0;
    v1::JobSpec spec = {};
    std::vector<v1::Topology> topologies = {};
    StrategyChanges::Numbers strategies = {};
  };

  // What a fit is begun with, and the memory that it takes.
  struct DueFit {
    std::vector<HeldIteration> iterations;
    uint64_t measured_before = 0;
    int64_t bytes = 0;
  };

  // With a place in the pool; without iterations: nothing is to be fitted now.
  DueFit ReserveIfDue();
  // Takes up what an earlier planner has fitted, too.
  bool IsDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  std::vector<HeldIteration> MeasuredLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void Run(std::vector<HeldIteration> iterations, uint64_t measured_before, const PlanningTicket& ticket);
  void EndFitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  std::vector<BatchPtr> BatchesToPlanLocked(uint64_t from) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Whether all batches from this iteration on that wait for a plan fit by other costs. Returns the first
  // iteration whose batch was not there yet. Possible errors: those of BatchPlanner::CheckBatch.
  absl::StatusOr<uint64_t> CheckHasRoom(const BatchPlanner& planner, uint64_t from, core::StopToken stop);
  // If all batches fit by them that were measured, or wait for a plan. Possible errors: those of
  // CheckHasRoom, and of a planner with these costs.
  absl::Status Keep(const core::Calibration& calibration, Fit fit, core::StopToken stop);
  void KeepLocked(const core::Calibration& calibration, const Fit& fit, BatchPlannerPtr planner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  JobPlanners& planners_;
  const JobPlanning& planning_;
  bool fitting_ ABSL_GUARDED_BY(job_lock) = false;
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(job_lock);
  // Costs were fitted to the iterations before it, or were tried to be.
  uint64_t fitted_before_ ABSL_GUARDED_BY(job_lock) = 0;
  // That were begun; the last of them may still run.
  int fits_ ABSL_GUARDED_BY(job_lock) = 0;
};

}  // namespace penstock
