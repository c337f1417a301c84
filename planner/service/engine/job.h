// One job, as its callers see it: what they ask for goes to the part of the job that does it.
//
//   job_record        who it is, its state and events, its lock    (all parts share it)
//   job_planners      what its batches are planned with
//   job_preparation   makes the first planners: stages are chosen
//   job_admission     takes batches
//   job_planning      the planning queue: from an accepted batch to a plan in memory
//   job_delivery      gives programs to who reads them             (job_readers: who that is)
//   job_workers       membership: registrations, heartbeats, lost workers
//   job_reports       takes what ranks measured
//   job_costs         follows what was measured
//   job_diagnoses     says where time went
//   job_strategies    changes strategies while the job runs
//   job_iterations    what is known of iterations, for who looks
//   job_traces        what the observer is told of batches
//
// The methods are those of the planner service, with the same errors; requests are for this job and
// well-formed (planner/service/rpc validates). None blocks. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_admission.h"
#include "planner/service/engine/job_costs.h"
#include "planner/service/engine/job_delivery.h"
#include "planner/service/engine/job_diagnoses.h"
#include "planner/service/engine/job_iterations.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_preparation.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/engine/job_reports.h"
#include "planner/service/engine/job_strategies.h"
#include "planner/service/engine/job_traces.h"
#include "planner/service/engine/job_workers.h"

namespace penstock {

class Job {
 public:
  // A job that is registered now: its first event goes to the journal. `key`: see JobChange.
  static std::shared_ptr<Job> Register(uint64_t key, const v1::JobSpec& spec, const JobServices& services);
  // A job as the store has it; `events` is the sequence of its last event.
  static std::shared_ptr<Job> Recover(uint64_t key, JobState state, uint64_t events,
                                      const JobServices& services);

  const std::string& id() const { return record_.id(); }
  // As it was registered.
  const v1::JobSpec& spec() const { return record_.spec(); }
  bool HasSpec(const v1::JobSpec& spec) const { return record_.HasSpec(spec); }

  // Makes the planner of the job, in the pool: chooses stages where the job leaves them to the planner. Does
  // nothing when that is done, under way, or when the pool has no place now.
  void Prepare() { preparation_.Prepare(); }
  // Called once the job has a planner, or with why it gets none: then the job is of no use. Returns who
  // waits; 0: it was called at once.
  using Prepared = JobPreparation::Prepared;
  uint64_t WhenPrepared(Prepared prepared) { return preparation_.WhenPrepared(std::move(prepared)); }
  // That one waits no more; it is not called. True when the job was never prepared and nobody else waits:
  // then it is of no use.
  bool StopWaiting(uint64_t waiter) { return preparation_.StopWaiting(waiter); }
  // Possible errors: UNAVAILABLE (not prepared yet).
  absl::StatusOr<BatchPlannerPtr> Planner() const;

  absl::StatusOr<v1::SubmitBatchesResponse> SubmitBatches(const v1::SubmitBatchesRequest& request) {
    return admission_.Submit(request);
  }
  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(const v1::RegisterWorkerRequest& request) {
    return workers_.Register(request);
  }
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request) {
    return workers_.Heartbeat(request);
  }
  absl::Status ReportIteration(const v1::ReportIterationRequest& report) { return reports_.Take(report); }
  absl::StatusOr<v1::JobState> Drain();
  // As the method of the service: `done` is called once, when the strategies are prepared and the change is
  // durable, or with why it is not made: at once, by a thread of the pool, or by whoever cancels the ticket.
  // Null: it was called at once, or waits for the disk alone.
  using StrategiesDone = JobStrategies::Done;
  PlanningTicketPtr ChangeStrategies(const v1::ChangeStrategiesRequest& request, StrategiesDone done) {
    return strategies_.Change(request, std::move(done));
  }
  // The strategies of iterations that are planned from now on, and since which one they hold. Numbers are
  // indices of SpecNow().
  absl::StatusOr<v1::ChangeStrategiesResponse> StrategiesNow() const { return strategies_.Now(); }
  StrategyChanges::Numbers StrategyNumbers() const { return strategies_.Numbers(); }
  // With all strategies that the job ever had.
  v1::JobSpec SpecNow() const;
  // Ends streams with NOT_FOUND and has the store forget the job; nothing of it is written afterwards.
  // `force`: even while workers are there.
  // Possible errors: FAILED_PRECONDITION (workers are there).
  absl::Status Delete(bool force);

  // The programs of a rank. `wake` is called, without a lock held, when Next() may have more; it may be
  // called shortly after the subscription's end. What is wrong with the request, Next() says.
  std::unique_ptr<ProgramSubscription> Subscribe(const v1::StreamProgramsRequest& request,
                                                 WakeList::Wake wake) {
    return delivery_.Subscribe(request, std::move(wake));
  }

  // Journal::WhenDurable of the job.
  void WhenDurable(Journal::Durable durable, Urgency urgency = Urgency::kNow) const {
    record_.WhenDurable(std::move(durable), urgency);
  }

  v1::JobState State() const;
  // Nothing that anyone does brings it back, or nobody has for `patience` since its epoch failed; and nobody
  // reads its programs.
  bool IsOver(absl::Duration patience) const;
  // Since its last event.
  absl::Duration Age() const;
  // It has a batch, a worker or a reader, or had one.
  bool IsStarted() const;
  v1::JobStatus Status() const;
  v1::GetJobResponse Get(uint64_t from_iteration) const;
  absl::StatusOr<v1::GetIterationResponse> GetIteration(uint64_t iteration, uint32_t compact_version = 0) {
    return iterations_.Get(iteration, compact_version);
  }
  // The same without copies, for who only looks: what is no longer in memory is not made again.
  // Possible errors: OUT_OF_RANGE (the iteration is not held), UNAVAILABLE (not in memory).
  absl::StatusOr<HeldIteration> Held(uint64_t iteration) const { return iterations_.Held(iteration); }
  // Of iterations from this one on, ascending.
  std::vector<v1::IterationSummary> Summaries(uint64_t from_iteration) const {
    return iterations_.Summaries(from_iteration);
  }
  // Of the last iteration that all ranks reported.
  std::optional<v1::IterationSummary> LastSummary() const { return iterations_.LastSummary(); }
  // Of batches, plans and reports in memory.
  size_t MemoryBytes() const;
  // Everything that its events say.
  store::v1::JobSnapshot Snapshot() const;

  // Looks for lost workers and for batches that can be planned; to be called every 100 ms or so.
  void Tick();
  // The planner stood still for so long: the workers' silence meanwhile does not count. Before Tick.
  void ExcuseSilence(absl::Duration gap) { workers_.ExcuseSilence(gap); }
  // The planner ends: submissions are refused and streams end with UNAVAILABLE.
  void Stop();

 private:
  Job(uint64_t key, JobState state, uint64_t events, const JobServices& services);

  v1::JobStatus StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // Each knows those above it that it needs.
  JobRecord record_;
  JobPlanners planners_;
  JobReaders readers_;
  JobWorkers workers_;
  JobTraces traces_;
  JobPlanning planning_;
  JobPreparation preparation_;
  JobDelivery delivery_;
  JobCosts costs_;
  JobAdmission admission_;
  JobStrategies strategies_;
  JobDiagnoses diagnoses_;
  JobReports reports_;
  JobIterations iterations_;
};

}  // namespace penstock
