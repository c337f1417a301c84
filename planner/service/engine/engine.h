// The planner service without a transport: all jobs, the pool that plans for them, and the journal that
// writes what happens to them.
//
//   PlannerEngine engine({.planning_threads = 2}, {&planners, &checker, &store, &clock, &observer});
//   PENSTOCK_RETURN_IF_ERROR(engine.Recover());
//   engine.RegisterJob(spec, [](absl::StatusOr<v1::JobState> state) { ... });
//   PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<Job> job, engine.FindJob("gpt"));
//   job->SubmitBatches(request);
//   job->WhenDurable([](absl::Status status) { ... answer ... });
//   ... every 100 ms: engine.Tick();
//   engine.Shutdown(absl::Seconds(2));
//
// Thread-safe. Knows nothing of gRPC; time comes from the clock it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/secret/random_secret.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job.h"
#include "planner/service/engine/job_places.h"
#include "planner/service/engine/owner_quotas.h"

namespace penstock {

struct EngineOptions {
  // Batches that are planned at a time. With 1, a batch of a live job beside whatever else is planned.
  int planning_threads = 1;
  // Batches that wait for a planning thread, over all jobs.
  size_t queue_capacity = 1024;
  // How long a batch may be planned, or a job prepared, before it is given up with DEADLINE_EXCEEDED.
  absl::Duration planning_limit = absl::Minutes(5);
  // A job that is over makes room for a new one, the oldest first.
  JobQuotas quotas = {};
  OwnerLimits owners = {};
  // Jobs that nobody started for so long are deleted.
  absl::Duration keep_unstarted_jobs = absl::Hours(1);
  // Jobs that have been over for so long are deleted.
  absl::Duration keep_finished_jobs = absl::Hours(24 * 7);
  // A job whose epoch failed and whose workers have not come back for so long is over, too.
  absl::Duration keep_failed_jobs = absl::Hours(1);
  // Of batches, plans and reports in memory, of one job and of all together.
  size_t job_memory_bytes = size_t{1} << 30;
  size_t memory_bytes = size_t{4} << 30;
  // Of programs that streams hold and nobody has read.
  size_t stream_memory_bytes = size_t{512} << 20;
  // Of all that is planned at a time; a batch that takes more alone is refused.
  int64_t planning_memory_bytes = INT64_MAX;
  // The largest message that a client can be sent.
  int64_t message_bytes = int64_t{64} << 20;
  // Of the process. When it is above, what takes most of what is planned is stopped (WatchMemory).
  size_t process_memory_bytes = SIZE_MAX;
  JournalOptions journal = {};
};

// Not owned; must outlive the engine.
struct EngineDependencies {
  const BatchPlannerFactory* planners = nullptr;
  const PlanChecker* checker = nullptr;
  EventStore* store = nullptr;
  const SteadyClock* clock = nullptr;
  EngineObserver* observer = nullptr;
  MakeSecret make_secret = RandomSecret;
  // Resident memory of the process; null: nobody watches it.
  std::function<size_t()> resident_bytes = nullptr;
  // Called by each thread that begins to plan: WatchMemory is wanted again.
  std::function<void()> planning_begins = nullptr;
};

class PlannerEngine {
 public:
  PlannerEngine(const EngineOptions& options, const EngineDependencies& dependencies);
  ~PlannerEngine();
  PlannerEngine(const PlannerEngine&) = delete;
  PlannerEngine& operator=(const PlannerEngine&) = delete;

  // Takes up the jobs that the store has; to be called once, first. Their planners are made afterwards, in
  // the pool: until then they are PREPARING.
  // Possible errors: those of EventStore::Load; DATA_LOSS (names the job).
  absl::Status Recover();

  // What one answer may be as a message.
  int64_t message_bytes() const { return options_.message_bytes; }

  // As the method of the service: idempotent for the same specification. `done` is called once, when the job
  // is prepared or is not to be and that is durable; the job is known at once.
  using Registered = std::function<void(absl::StatusOr<v1::JobState>)>;
  // Returns what StopWaiting takes.
  struct Registration {
    std::shared_ptr<Job> job;
    uint64_t waiter = 0;
  };
  Registration RegisterJob(const v1::JobSpec& spec, Registered done);
  // Whoever registered has gone: `done` is not called any more, unless the job is prepared and waits to be
  // durable; a job that was never prepared and that nobody else waits for is forgotten.
  void StopWaiting(const Registration& registration);
  // Possible errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<Job>> FindJob(const std::string& job_id) const;
  // By job id.
  std::vector<std::shared_ptr<Job>> Jobs() const;
  // What quotas count, in the order of Jobs().
  std::vector<JobPlace> Places() const;
  // Possible errors: NOT_FOUND, those of Job::Delete.
  absl::Status DeleteJob(const std::string& job_id, bool force);

  // See Journal.
  absl::Status StoreHealth() const { return journal_.health(); }
  Journal::Backlog StoreBacklog() const { return journal_.backlog(); }
  // See EventStore. The engine must outlive the copy.
  absl::StatusOr<std::unique_ptr<StoreCopy>> CopyStore() const { return dependencies_.store->BeginCopy(); }
  bool IsFenced() const { return journal_.fenced(); }

  // Plans one batch in the pool and keeps nothing. `done` is called exactly once: at once when the queue is
  // full, a quota refuses it or the planner stops, else by a thread of the pool or the one that cancels.
  // `payer`: whoever asks; payers take turns. The ticket is null when `done` was called at once.
  using PlanDone = std::function<void(absl::StatusOr<v1::Plan>)>;
  PlanningTicketPtr PlanBatch(const v1::PlanBatchRequest& request, std::string payer, PlanDone done);
  // Fits costs in the pool and keeps nothing; all else as PlanBatch.
  using CostsDone = std::function<void(absl::StatusOr<v1::ReviseCostsResponse>)>;
  PlanningTicketPtr ReviseCosts(const v1::ReviseCostsRequest& request, std::string payer, CostsDone done);
  // Nobody waits for the answer any more: it is not computed, or no further.
  void CancelWhatIf(const PlanningTicketPtr& ticket) { pool_.Cancel(ticket); }

  // Of programs that streams hold and nobody has read.
  size_t stream_bytes() const { return streams_.held(); }
  // What owners use.
  std::vector<OwnerUse> OwnerUses() const { return quotas_.Uses(); }
  // And how much of their quotas: of these, in their order. Who has no name is left out, as each of its jobs
  // has quotas of its own.
  std::vector<v1::QuotaUse> QuotaUses(const std::set<std::string>& owners) const;
  // Batches that wait for a planning thread.
  size_t queue_depth() const { return pool_.depth(); }

  // Looks for lost workers in all jobs, for plans that take too long and for jobs that are over for long. To
  // be called every 100 ms or so.
  void Tick();

  // Stops what is planned while the process has more memory than it may: the estimates were wrong. To be
  // called every 20 ms or so as long as it returns true, which is while something is planned.
  bool WatchMemory();

  // This process stood still for so long (SIGSTOP, a machine that was paused) and could hear no worker.
  // Before the next Tick.
  void ExcuseSilence(absl::Duration gap);

  // Ends all subscriptions with UNAVAILABLE, refuses work, plans what waits for at most `drain`, stops the
  // rest and writes what is not yet written. Blocks until that is done, two seconds more at most. Idempotent.
  void Shutdown(absl::Duration drain);

 private:
  core::PlanningRoom RoomOfJobs() const;
  // What planning the request takes; validates it as far as that is quick.
  absl::StatusOr<int64_t> AdmitPlanBatch(const v1::PlanBatchRequest& request) const;
  absl::Status AdmitPreparation(const v1::JobSpec& spec) const;
  absl::StatusOr<v1::Plan> PlanNow(const v1::PlanBatchRequest& request, core::StopToken stop) const;
  bool stopped() const;
  // A place for what no job waits for. Possible errors: RESOURCE_EXHAUSTED, UNAVAILABLE.
  absl::Status ReserveWhatIf(const std::string& payer);
  // A place for a plan, and its samples of the quota: what planning it takes. Possible errors: as
  // ReserveWhatIf and AdmitPlanBatch.
  absl::StatusOr<int64_t> ReservePlan(const v1::PlanBatchRequest& request, const std::string& payer);
  // Possible errors: those of the ticket, RESOURCE_EXHAUSTED (a quota).
  absl::Status BeginWhatIf(const PlanningTicket& ticket) const;
  // The job with this specification: the one that is there, or a new one.
  absl::StatusOr<std::shared_ptr<Job>> FindOrAddJob(const v1::JobSpec& spec);
  // Whether the owner may have one more job; makes room for it.
  absl::Status AdmitJobLocked(const v1::JobSpec& spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<JobPlace> PlacesOf(const std::vector<std::shared_ptr<Job>>& jobs) const;
  // `owner`: of the new job.
  absl::Status MakeRoomLocked(const std::string& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the job, unless another has its id by now.
  void Forget(const Job& job);
  void DeleteOldJobs();
  JobServices Services();
  void AddLocked(const std::shared_ptr<Job>& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EngineOptions options_;
  const EngineDependencies dependencies_;
  MemoryBudget memory_;
  StreamBudget streams_;
  OwnerQuotas quotas_;
  Journal journal_;
  PlanningPool pool_;

  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  // See JobChange.
  uint64_t largest_key_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
