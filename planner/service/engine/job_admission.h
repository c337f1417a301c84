// Which batches a job takes: those that can be planned, in order, as far as there is room ahead of its ranks.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_costs.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/engine/job_traces.h"
#include "planner/service/state/length_drift.h"

namespace penstock {

class JobAdmission {
 public:
  // All must outlive it.
  JobAdmission(JobRecord& record, const JobPlanners& planners, JobPlanning& planning, JobCosts& costs,
               JobTraces& traces)
      : record_(record),
        planners_(planners),
        planning_(planning),
        costs_(costs),
        traces_(traces),
        length_drift_(record.state().spec().planning()) {}

  // The method of the service.
  absl::StatusOr<v1::SubmitBatchesResponse> Submit(const v1::SubmitBatchesRequest& request);

  // LengthDrift of the batches that were taken.
  std::optional<double> LengthDriftLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return length_drift_.share();
  }
  void ExpectLengthsLocked(const v1::PlanningOptions& planning) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    length_drift_.Expect(planning);
  }

 private:
  // Of the batches of a request, one after the other.
  struct Submitted {
    absl::Time asked;
    // What planning takes, as estimated.
    std::vector<int64_t> planning_bytes;
    // Whether they fit by the costs in effect; they do by those that the job was registered with.
    bool fit_costs_in_effect = true;
    std::vector<std::string> serialized;
    std::vector<std::string> hashes;
  };

  // Returns what planning each of them takes, bytes.
  absl::StatusOr<std::vector<int64_t>> ValidateBatches(const v1::SubmitBatchesRequest& request,
                                                       const BatchPlanner& planner) const;
  absl::Status ValidateByAllCosts(const v1::SubmitBatchesRequest& request, const NewestPlanners& planners,
                                  Submitted* submitted) const;
  absl::Status CheckAcceptsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Room for what is kept ahead of the ranks.
  absl::Status CheckRoomAheadLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::Status CheckMayAdmit(const v1::SubmitBatchesRequest& request) const;
  absl::Status TakeFromQuotas(const v1::SubmitBatchesRequest& request, size_t known, uint64_t next) const;
  // Takes the batches that are new.
  absl::Status AdmitLocked(const v1::SubmitBatchesRequest& request, Submitted submitted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  const JobPlanners& planners_;
  JobPlanning& planning_;
  JobCosts& costs_;
  JobTraces& traces_;
  // Not part of the job's events.
  LengthDrift length_drift_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
