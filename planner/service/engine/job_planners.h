// The planners of a job: what its batches are planned with, by costs and strategies.
//
// Not part of the job's events: they are made anew by each planner process (job_preparation.h), where costs
// are revised (job_costs.h) and where strategies change (job_strategies.h). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/state/strategy_changes.h"

namespace penstock {

using BatchPlannerPtr = std::shared_ptr<const BatchPlanner>;

// What new batches have to fit: planners of the strategies that hold now.
struct NewestPlanners {
  // With the costs that the job was registered with.
  BatchPlannerPtr registered;
  // With those in effect; null where they are the same, or where it is not made yet.
  BatchPlannerPtr in_effect;

  bool operator==(const NewestPlanners&) const = default;
};

class JobPlanners {
 public:
  // With the costs that the job was registered with: by the numbers of the strategies that they plan on; none
  // where the job has none.
  using Registered = std::map<StrategyChanges::Numbers, BatchPlannerPtr>;
  // With revised costs: also by the version of their profile.
  using RevisedCosts = std::pair<uint64_t, StrategyChanges::Numbers>;
  using Revised = std::map<RevisedCosts, BatchPlannerPtr>;
  struct Prepared {
    // Of all iterations that are held, with the costs that the job was registered with.
    Registered registered;
    // Of those to come, with the costs in effect, where they were revised: new batches have to fit by them.
    Revised revised;
  };

  // `record` must outlive it.
  explicit JobPlanners(JobRecord& record) : record_(record) {}

  // The job has planners now.
  void PrepareLocked(Prepared planners) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // It never gets any.
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { failure_ = why; }
  // The costs of this version are in effect.
  void ReviseCostsLocked(uint64_t version, const StrategyChanges::Numbers& strategies,
                         BatchPlannerPtr planner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // These strategies hold. `revised`: with the costs of `costs_version`; null where they were never revised.
  void ChangeStrategiesLocked(const StrategyChanges::Numbers& strategies, BatchPlannerPtr registered,
                              BatchPlannerPtr revised, uint64_t costs_version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Planners of iterations that are no longer held are of no use.
  void ForgetOldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  bool AreThereLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return newest_ != nullptr; }
  // Why the job gets none.
  const absl::Status& failure() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return failure_; }
  // Possible errors: UNAVAILABLE (not prepared yet), failure().
  absl::Status CheckPreparedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  NewestPlanners NewestLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // With the costs that the job was registered with, on the strategies of the iteration, or where that is not
  // made, on those that hold now.
  BatchPlannerPtr RegisteredLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // What the iteration is planned with. Made now where it is not there: after a restart, or where costs and
  // strategies changed at the same time. Possible errors: as CheckPreparedLocked, CANCELLED.
  absl::StatusOr<BatchPlannerPtr> Of(uint64_t iteration, core::StopToken stop);

 private:
  JobRecord& record_;
  Registered registered_ ABSL_GUARDED_BY(job_lock);
  // The one of the strategies that hold now; null until the job is prepared.
  BatchPlannerPtr newest_ ABSL_GUARDED_BY(job_lock);
  Revised revised_ ABSL_GUARDED_BY(job_lock);
  absl::Status failure_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
