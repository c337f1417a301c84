// Other strategies for the iterations of a job that are not planned yet (ChangeStrategies).
//
// They are prepared in the pool, as a job is, while the job is planned and trained as before; then one event
// says from which iteration on they hold. What is accepted meanwhile is looked at again before that.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_admission.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobStrategies {
 public:
  using Done = std::function<void(absl::StatusOr<v1::ChangeStrategiesResponse>)>;

  // All must outlive it.
  JobStrategies(JobRecord& record, JobPlanners& planners, JobReaders& readers, JobPlanning& planning,
                JobAdmission& admission)
      : record_(record), planners_(planners), readers_(readers), planning_(planning), admission_(admission) {}

  // See Job.
  PlanningTicketPtr Change(const v1::ChangeStrategiesRequest& request, Done done);
  absl::StatusOr<v1::ChangeStrategiesResponse> Now() const;
  StrategyChanges::Numbers Numbers() const;
  // The job was deleted: no change goes on.
  void Cancel();

 private:
  // What a request asks for, of the job as it was then; no other change is begun meanwhile.
  struct WantedChange {
    v1::ChangeStrategiesRequest request;
    // Of those in the request, in their order; the same, ascending and each once; those that are new.
    std::vector<uint32_t> answer;
    StrategyChanges::Numbers numbers;
    std::vector<v1::Strategy> added;
    // The job with them, and who is where on all but them.
    v1::JobSpec spec;
    std::vector<v1::Topology> topologies;

    // With the typical samples of the request.
    v1::JobSpec SpecToChooseStages() const;
  };
  struct PreparedChange {
    // Of those that are added.
    std::vector<v1::Topology> topologies = {};
    BatchPlannerPtr planner = nullptr;
    // With the costs of this version, where they were revised.
    BatchPlannerPtr revised = nullptr;
    uint64_t costs_version = 0;
    // All batches before it that were not planned fit.
    uint64_t checked_before = 0;
  };

  absl::Status CheckReadersTakeStrategiesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::Status CheckMayChangeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  v1::ChangeStrategiesResponse NowLocked(const std::vector<uint32_t>& numbers) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Null: they hold already.
  absl::StatusOr<std::shared_ptr<WantedChange>> BeginChangeLocked(const v1::ChangeStrategiesRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::StatusOr<int64_t> AdmitChange(const WantedChange& change) const;
  void RunChange(const WantedChange& change, const PlanningTicket& ticket, const Done& done);
  absl::StatusOr<v1::ChangeStrategiesResponse> MakeChange(const WantedChange& change,
                                                          const PlanningTicket& ticket);
  // A planner with the costs that the next plans are made with, where they were revised.
  absl::Status TakeCostsInEffect(const WantedChange& change, absl::Span<const v1::Topology> topologies,
                                 const PlanningTicket& ticket, PreparedChange* prepared);
  // That each batch that is accepted and not planned fits one of the new strategies.
  absl::Status CheckAcceptedFit(const PlanningTicket& ticket, PreparedChange* prepared);
  v1::ChangeStrategiesResponse KeepChangeLocked(const WantedChange& change, PreparedChange prepared)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Once what led to the answer is on the disk.
  void AnswerChange(v1::ChangeStrategiesResponse answer, Done done) const;
  void EndChange();

  JobRecord& record_;
  JobPlanners& planners_;
  JobReaders& readers_;
  JobPlanning& planning_;
  JobAdmission& admission_;
  // Other strategies are being prepared.
  std::shared_ptr<const WantedChange> changing_ ABSL_GUARDED_BY(job_lock);
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
