// One job: admission, planning, delivery, membership and reports, behind one lock.
//
// What the job is, is the fold of its events (state/job_state.h). A method decides from the state, under the
// lock; each decision is an event, which changes the state and goes to the journal (RecordLocked). So the
// store is never called with the lock held, and heartbeats wait for no disk. What must not be seen before it
// is durable waits for the journal: clients' answers (WhenDurable, called in rpc/), the planning of
// batches, the delivery of plans.
//
// The methods are those of the planner service, with the same errors; requests are for this job and
// well-formed (planner/service/rpc validates). None blocks. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/heartbeats.h"
#include "planner/service/engine/job_diagnoses.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/engine/program_messages.h"
#include "planner/service/engine/program_subscription.h"
#include "planner/service/engine/stream_readers.h"
#include "planner/service/engine/wake_list.h"
#include "planner/service/state/length_drift.h"
#include "planner/service/state/strategy_changes.h"

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
  void Prepare();
  // Called once the job has a planner, or with why it gets none: then the job is of no use. Returns who
  // waits; 0: it was called at once.
  using Prepared = std::function<void(const absl::Status&)>;
  uint64_t WhenPrepared(Prepared prepared);
  // That one waits no more; it is not called. True when the job was never prepared and nobody else waits:
  // then it is of no use.
  bool StopWaiting(uint64_t waiter);
  // Possible errors: UNAVAILABLE (not prepared yet).
  absl::StatusOr<std::shared_ptr<const BatchPlanner>> Planner() const;

  absl::StatusOr<v1::SubmitBatchesResponse> SubmitBatches(const v1::SubmitBatchesRequest& request);
  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(const v1::RegisterWorkerRequest& request);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request);
  absl::Status ReportIteration(const v1::ReportIterationRequest& report);
  absl::StatusOr<v1::JobState> Drain();
  // As the method of the service: `done` is called once, when the strategies are prepared and the change is
  // durable, or with why it is not made: at once, by a thread of the pool, or by whoever cancels the ticket.
  // Null: it was called at once, or waits for the disk alone.
  using StrategiesDone = std::function<void(absl::StatusOr<v1::ChangeStrategiesResponse>)>;
  PlanningTicketPtr ChangeStrategies(const v1::ChangeStrategiesRequest& request, StrategiesDone done);
  // The strategies of iterations that are planned from now on, and since which one they hold. Numbers are
  // indices of SpecNow().
  absl::StatusOr<v1::ChangeStrategiesResponse> StrategiesNow() const;
  StrategyChanges::Numbers StrategyNumbers() const;
  // With all strategies that the job ever had.
  v1::JobSpec SpecNow() const;
  // Ends streams with NOT_FOUND and has the store forget the job; nothing of it is written afterwards.
  // `force`: even while workers are there.
  // Possible errors: FAILED_PRECONDITION (workers are there).
  absl::Status Delete(bool force);

  // The programs of a rank. `wake` is called, without a lock held, when Next() may have more; it may be
  // called shortly after the subscription's end. What is wrong with the request, Next() says.
  std::unique_ptr<ProgramSubscription> Subscribe(const v1::StreamProgramsRequest& request,
                                                 WakeList::Wake wake);

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
  absl::StatusOr<v1::GetIterationResponse> GetIteration(uint64_t iteration, uint32_t compact_version = 0);
  // The same without copies, for who only looks: what is no longer in memory is not made again.
  // Possible errors: OUT_OF_RANGE (the iteration is not held), UNAVAILABLE (not in memory).
  absl::StatusOr<HeldIteration> Held(uint64_t iteration) const;
  // Of iterations from this one on, ascending.
  std::vector<v1::IterationSummary> Summaries(uint64_t from_iteration) const;
  // Of the last iteration that all ranks reported.
  std::optional<v1::IterationSummary> LastSummary() const;
  // Of batches, plans and reports in memory.
  size_t MemoryBytes() const;
  // Everything that its events say.
  store::v1::JobSnapshot Snapshot() const;

  // Looks for lost workers and for batches that can be planned; to be called every 100 ms or so.
  void Tick();
  // The planner stood still for so long: the workers' silence meanwhile does not count. Before Tick.
  void ExcuseSilence(absl::Duration gap);
  // The planner ends: submissions are refused and streams end with UNAVAILABLE.
  void Stop();

 private:
  friend class ProgramSubscription;
  Job(uint64_t key, JobState state, uint64_t events, const JobServices& services);

  // job_preparation.cc
  // By the numbers of the strategies that they plan on; none where the job has none.
  using Planners = std::map<StrategyChanges::Numbers, std::shared_ptr<const BatchPlanner>>;
  int64_t PreparationBytes(const v1::JobSpec& spec) const;
  absl::Status CheckPreparedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void PreparePlanners(const PlanningTicket& ticket);
  // With revised costs, by the version of their profile and the strategies that they plan on.
  using RevisedCosts = std::pair<uint64_t, StrategyChanges::Numbers>;
  using RevisedPlanners = std::map<RevisedCosts, std::shared_ptr<const BatchPlanner>>;
  struct PreparedPlanners {
    // Of all iterations that are held, with the costs that the job was registered with.
    Planners registered;
    // Of those to come, with the costs in effect, where they were revised: new batches have to fit by them.
    RevisedPlanners revised;
  };
  absl::StatusOr<PreparedPlanners> MakePlanners(core::StopToken stop) const;
  void KeepPlanners(absl::StatusOr<PreparedPlanners> planners);

  // job_strategies.cc
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
    std::shared_ptr<const BatchPlanner> planner = nullptr;
    // With the costs of this version, where they were revised.
    std::shared_ptr<const BatchPlanner> revised = nullptr;
    uint64_t costs_version = 0;
    // All batches before it that were not planned fit.
    uint64_t checked_before = 0;
  };
  absl::Status CheckReadersTakeStrategiesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::Status CheckMayChangeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  v1::ChangeStrategiesResponse StrategiesNowLocked(const std::vector<uint32_t>& numbers) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Null: they hold already.
  absl::StatusOr<std::shared_ptr<WantedChange>> BeginChangeLocked(const v1::ChangeStrategiesRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::StatusOr<int64_t> AdmitChange(const WantedChange& change) const;
  void RunChange(const WantedChange& change, const PlanningTicket& ticket, const StrategiesDone& done);
  absl::StatusOr<v1::ChangeStrategiesResponse> MakeChange(const WantedChange& change,
                                                          const PlanningTicket& ticket);
  absl::Status TakeCostsInEffect(const WantedChange& change, absl::Span<const v1::Topology> topologies,
                                 const PlanningTicket& ticket, PreparedChange* prepared);
  absl::Status CheckAcceptedFit(const PlanningTicket& ticket, PreparedChange* prepared);
  v1::ChangeStrategiesResponse KeepChangeLocked(const WantedChange& change, PreparedChange prepared)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void AnswerChange(v1::ChangeStrategiesResponse answer, StrategiesDone done) const;
  void EndChange();

  // job_batches.cc
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
  // What new batches have to fit: planners of the strategies that hold now.
  struct NewestPlanners {
    // With the costs that the job was registered with.
    std::shared_ptr<const BatchPlanner> registered;
    // With those in effect; null where they are the same, or where it is not made yet.
    std::shared_ptr<const BatchPlanner> in_effect;

    bool operator==(const NewestPlanners&) const = default;
  };
  NewestPlanners NewestPlannersLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
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
  absl::Status AdmitLocked(const v1::SubmitBatchesRequest& request, Submitted submitted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // job_planning.cc
  struct PlannedBatch {
    BatchPtr batch;
    PackedPlanPtr plan;
    // Found without the lock: it looks through the whole plan.
    store::v1::IterationPlanned figures;
  };
  // The next iteration that needs a plan in memory and gets one now.
  std::optional<uint64_t> NextToPlanLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  bool NeedsPlanLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Gives the pool what needs a plan, as far as there is room.
  void PlanMore();
  void Keep(uint64_t iteration, PlanningTicketPtr ticket);
  int64_t PlanningBytesLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void PlanIteration(uint64_t iteration, absl::Time queued, const PlanningTicket& ticket);
  // `made`: set to when the plan was made and not yet checked.
  absl::StatusOr<PlannedBatch> MakePlan(uint64_t iteration, const PlanningTicket& ticket, absl::Time* made);
  absl::StatusOr<BatchPtr> BatchOf(uint64_t iteration, const BatchPlanner& planner);
  void KeepPlanLocked(PlannedBatch planned) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Of an iteration that is done: who asked for its plan is told why there is none.
  void GiveUpPlanLocked(uint64_t iteration, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void FailPlanningLocked(uint64_t iteration, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // job_traces.cc
  struct PlanningTimes {
    absl::Time queued;
    absl::Time began;
    absl::Time made = absl::InfiniteFuture();
  };
  // Iterations, and when their batches were accepted.
  using EndedBatches = std::vector<std::pair<uint64_t, absl::Time>>;
  // After a restart of the planner: as if they were accepted now.
  void TakeUpBatchesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Adds the batch to `ended` where that was not told before.
  void NoteEndLocked(uint64_t iteration, EndedBatches& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void TellOfTry(uint64_t iteration, const PlanningTimes& times,
                 const absl::StatusOr<PlannedBatch>& planned) const;
  void TellOfFailures(const EndedBatches& batches, const absl::Status& why) const;
  void TellOfEnds(const EndedBatches& batches, const std::vector<v1::IterationSummary>& summaries) const;

  // job_suspects.cc
  void SuspectUnplannedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::Status BeginTry(uint64_t iteration, const PlanningTicket& ticket);
  void EndTryLocked(uint64_t iteration, bool planned) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void RecordTriesLocked(uint64_t iteration, uint32_t tries, JobRecord::Committed committed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // job_costs.cc
  // Fits costs to what was measured, once there is enough of it that is new.
  void Recalibrate();
  std::vector<HeldIteration> MeasuredLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  std::vector<BatchPtr> BatchesToPlanLocked(uint64_t from) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Whether all batches from this iteration on that wait for a plan fit by other costs. Returns the first
  // iteration whose batch was not there yet. Possible errors: those of BatchPlanner::CheckBatch.
  absl::StatusOr<uint64_t> CheckHasRoom(const BatchPlanner& planner, uint64_t from, core::StopToken stop);
  // What costs are fitted to, and the job as it was then.
  struct CostFit {
    std::vector<HeldIteration> iterations;
    // Before this iteration.
    uint64_t measured_before = 0;
    v1::JobSpec spec = {};
    std::vector<v1::Topology> topologies = {};
    StrategyChanges::Numbers strategies = {};
  };
  void FitCosts(std::vector<HeldIteration> iterations, uint64_t measured_before,
                const PlanningTicket& ticket);
  void EndFitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // If all batches fit by them that were measured, or wait for a plan. Possible errors: those of
  // CheckHasRoom, and of a planner with these costs.
  absl::Status KeepCosts(const core::Calibration& calibration, CostFit fit, core::StopToken stop);
  // No iteration from this one on has a plan, or is being planned.
  uint64_t FirstUnplannedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Planners of iterations that are no longer held are of no use.
  void ForgetPlannersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Iterations that have no plan yet are planned with the costs that the job was registered with again.
  void TakeBackCostsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void KeepCostsLocked(const core::Calibration& calibration, const CostFit& fit,
                       std::shared_ptr<const BatchPlanner> planner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // The planner of an iteration, with the costs and on the strategies that it is planned with.
  // Possible errors: UNAVAILABLE (not prepared yet), CANCELLED.
  absl::StatusOr<std::shared_ptr<const BatchPlanner>> PlannerOf(uint64_t iteration, core::StopToken stop);

  // job_workers.cc
  absl::Status CheckStartLocked(uint64_t first_iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void FailWorkerLocked(store::v1::FailureKind kind, uint32_t rank, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void TakeHeartbeatLocked(const v1::HeartbeatRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  v1::HeartbeatResponse AnswerHeartbeatLocked(uint32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void ExpireWorkersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // job_reports.cc
  absl::Status CheckReporterLocked(const v1::ReportIterationRequest& report) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Of the rank's program, of a report that may be taken; empty where it was taken before. Takes time,
  // without the lock.
  absl::StatusOr<std::vector<v1::Op>> ReportedOps(const v1::ReportIterationRequest& report);
  absl::Status CheckSentLocked(const v1::ReportIterationRequest& report) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::Status KeepReportLocked(const v1::ReportIterationRequest& report, const std::vector<v1::Op>& ops)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // The last that are complete, as far as they are in memory.
  std::vector<CostedIteration> LastMeasuredLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void DiagnoseIfDue();

  // program_subscription.cc
  absl::Status CheckReaderLocked(const v1::StreamProgramsRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Nothing where the plan was made with the costs of the devices, or workers compute. `planner`: with the
  // costs that the job was registered with.
  absl::StatusOr<std::vector<int64_t>> ProfileDurations(const BatchPlanner& planner, const v1::Batch& batch,
                                                        const PackedPlan& plan, uint32_t rank) const;
  // `told`: strategies whose topologies the reader was sent; one that is new to it is added.
  ProgramSubscription::Item NextProgram(const v1::StreamProgramsRequest& request, uint64_t iteration,
                                        std::set<uint32_t>* told);
  NewTopologies NewTopologiesLocked(const PackedPlan& plan, const std::set<uint32_t>& told) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // job.cc
  v1::JobState StateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  v1::JobStatus StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Has a plan made that was forgotten, or is not made again yet.
  void WantPlanLocked(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord record_;
  WakeList readers_;
  StreamReaders stream_readers_;
  ProgramMessages messages_;
  const std::shared_ptr<JobDiagnoses> diagnoses_;

  // What follows is not part of the events, and starts anew with the planner.
  Heartbeats heartbeats_ ABSL_GUARDED_BY(job_lock);
  LengthDrift length_drift_ ABSL_GUARDED_BY(job_lock);
  // With the costs that the job was registered with; and the one of the strategies that hold now.
  Planners planners_ ABSL_GUARDED_BY(job_lock);
  std::shared_ptr<const BatchPlanner> planner_ ABSL_GUARDED_BY(job_lock);
  // Other strategies are being prepared.
  std::shared_ptr<const WantedChange> changing_ ABSL_GUARDED_BY(job_lock);
  PlanningTicketPtr change_ ABSL_GUARDED_BY(job_lock);
  bool preparing_ ABSL_GUARDED_BY(job_lock) = false;
  // Why the job gets no planner.
  absl::Status preparation_failure_ ABSL_GUARDED_BY(job_lock);
  std::map<uint64_t, Prepared> await_preparation_ ABSL_GUARDED_BY(job_lock);
  uint64_t last_waiter_ ABSL_GUARDED_BY(job_lock) = 0;
  // When the batches were accepted whose end was not told yet.
  std::map<uint64_t, absl::Time> accepted_ ABSL_GUARDED_BY(job_lock);
  // Batches before it are durable.
  uint64_t durable_batches_ ABSL_GUARDED_BY(job_lock);
  // Iterations that are being planned, or wait for the pool.
  std::map<uint64_t, PlanningTicketPtr> planning_ ABSL_GUARDED_BY(job_lock);
  // Iterations that are planned with nothing beside them: the planner ran out of memory before.
  std::set<uint64_t> alone_ ABSL_GUARDED_BY(job_lock);
  // Iterations that an earlier planner left without a plan, and how many planners died in planning them.
  std::map<uint64_t, uint32_t> suspects_ ABSL_GUARDED_BY(job_lock);
  PlanningTicketPtr preparation_ ABSL_GUARDED_BY(job_lock);
  RevisedPlanners revised_planners_ ABSL_GUARDED_BY(job_lock);
  PlanningTicketPtr fitting_ ABSL_GUARDED_BY(job_lock);
  // Costs were fitted to the iterations before it, or were tried to be.
  uint64_t fitted_before_ ABSL_GUARDED_BY(job_lock) = 0;
  // That were begun; the last of them may still run.
  int fits_ ABSL_GUARDED_BY(job_lock) = 0;
  bool fitting_now_ ABSL_GUARDED_BY(job_lock) = false;
  // Iterations that somebody asked for whose plan is not in memory.
  std::set<uint64_t> wanted_ ABSL_GUARDED_BY(job_lock);
  // Iterations that are done and whose plan could not be made again, and why, until that is told.
  std::map<uint64_t, absl::Status> lost_plans_ ABSL_GUARDED_BY(job_lock);
  // Iterations whose plan is not yet durable, so not yet delivered.
  std::set<uint64_t> undelivered_ ABSL_GUARDED_BY(job_lock);
  // By rank: one more than the last iteration that its stream was given in this epoch.
  std::vector<uint64_t> sent_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
