// One job: admission, planning, delivery, membership and reports, behind one lock.
//
// The methods are those of the planner service, with the same errors; requests are for this job and
// well-formed (planner/service/rpc validates). None blocks beyond the store. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/admission.h"
#include "planner/service/engine/batch_planner.h"
#include "planner/service/engine/clock.h"
#include "planner/service/engine/iteration_counter.h"
#include "planner/service/engine/membership.h"
#include "planner/service/engine/observer.h"
#include "planner/service/engine/plan_store.h"
#include "planner/service/engine/planning_pool.h"
#include "planner/service/engine/program_subscription.h"
#include "planner/service/engine/progress.h"
#include "planner/service/engine/wake_list.h"

namespace penstock {

// What all jobs share. Not owned.
struct JobServices {
  const PlanChecker* checker = nullptr;
  PlanStore* store = nullptr;
  PlanningPool* pool = nullptr;
  const SteadyClock* clock = nullptr;
  EngineObserver* observer = nullptr;
  // How long a batch may be planned.
  absl::Duration planning_limit = absl::InfiniteDuration();
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  static constexpr size_t kKeptSummaries = 4096;

  Job(v1::JobSpec spec, std::unique_ptr<BatchPlanner> planner, const JobServices& services);

  const v1::JobSpec& spec() const { return spec_; }
  const BatchPlanner& planner() const { return *planner_; }
  bool HasSpec(const v1::JobSpec& spec) const;

  absl::StatusOr<v1::SubmitBatchesResponse> SubmitBatches(const v1::SubmitBatchesRequest& request);
  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(const v1::RegisterWorkerRequest& request);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request);
  absl::Status ReportIteration(const v1::ReportIterationRequest& report);
  absl::StatusOr<v1::JobState> Drain();

  // The programs of a rank. `wake` is called, without a lock held, when Next() may have more; it may be
  // called shortly after the subscription's end. What is wrong with the request, Next() says.
  std::unique_ptr<ProgramSubscription> Subscribe(const v1::StreamProgramsRequest& request,
                                                 WakeList::Wake wake);

  v1::JobState State() const;
  // Finished, or a batch of it cannot be planned: nothing that anyone does brings it back.
  bool IsOver() const;
  v1::JobStatus Status() const;
  v1::GetJobResponse Get(uint64_t from_iteration) const;
  absl::StatusOr<v1::GetIterationResponse> GetIteration(uint64_t iteration) const;
  // Of the last iteration that all ranks reported.
  std::optional<v1::IterationSummary> LastSummary() const;

  // Looks for lost workers; to be called every 100 ms or so.
  void Tick();
  // The planner ends: submissions are refused and streams end with UNAVAILABLE.
  void Stop();

 private:
  friend class ProgramSubscription;

  // job_batches.cc
  absl::Status ValidateBatches(const v1::SubmitBatchesRequest& request) const;
  absl::Status CheckAcceptsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<BatchPtr>> AdmitLocked(const v1::SubmitBatchesRequest& request,
                                                    const std::vector<std::string>& hashes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlanIteration(const v1::Batch& batch, const PlanningTicket& ticket);
  void KeepPlanLocked(v1::Plan plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailPlanningLocked(uint64_t iteration, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // job_workers.cc
  absl::Status CheckStartLocked(uint64_t first_iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RestartLocked(uint64_t first_iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::HeartbeatResponse AnswerHeartbeatLocked(uint32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Log what changed since the last look.
  void LogEpochLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // job_reports.cc
  absl::Status CheckReporterLocked(const v1::ReportIterationRequest& report) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status KeepReportLocked(const v1::ReportIterationRequest& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<v1::IterationSummary> CompleteLocked(uint64_t from, uint64_t to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepSummaryLocked(const v1::IterationSummary& summary) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TrimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // program_subscription.cc
  absl::Status CheckReaderLocked(const v1::StreamProgramsRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ProgramSubscription::Item NextProgram(const v1::StreamProgramsRequest& request, uint64_t iteration);

  // job.cc
  v1::JobState StateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty when nothing failed.
  std::string FailureLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobStatus StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishIfDoneLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::JobSpec spec_;
  const std::string serialized_spec_;
  const std::unique_ptr<BatchPlanner> planner_;
  const JobServices services_;
  const uint32_t ranks_;
  const uint64_t window_;
  // Iterations held after all ranks reported them: at least 64, and back to the last checkpoint.
  const uint64_t history_;
  WakeList readers_;

  mutable Mutex mutex_;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  IterationCounter planned_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  // The first iteration that the store still holds.
  uint64_t first_held_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // Set for good: a batch that was accepted cannot be planned.
  std::string planning_failure_ ABSL_GUARDED_BY(mutex_);
  // Ascending; the last kKeptSummaries.
  std::deque<v1::IterationSummary> summaries_ ABSL_GUARDED_BY(mutex_);
  std::string logged_failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t logged_ready_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
