// The workers of a job: who joins an epoch, is heard of, fails or is lost. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/heartbeats.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobWorkers {
 public:
  // All must outlive it.
  JobWorkers(JobRecord& record, const JobPlanners& planners, JobReaders& readers);

  // The methods of the service.
  absl::StatusOr<v1::RegisterWorkerResponse> Register(const v1::RegisterWorkerRequest& request);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request);

  // To be called every 100 ms or so: who was silent for too long is lost.
  void ExpireLost();
  // The planner stood still for so long: the workers' silence meanwhile does not count. Before ExpireLost.
  void ExcuseSilence(absl::Duration gap);

  // The epoch fails, unless it has: `what` the worker of the rank did.
  void FailLocked(store::v1::FailureKind kind, uint32_t rank, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Since the worker of the rank was last heard of.
  absl::Duration SilenceLocked(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

 private:
  absl::Status CheckStartLocked(uint64_t first_iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void TakeHeartbeatLocked(const v1::HeartbeatRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  v1::HeartbeatResponse AnswerHeartbeatLocked(uint32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void ExpireLostLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  const JobPlanners& planners_;
  JobReaders& readers_;
  // Not part of the job's events.
  Heartbeats heartbeats_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
