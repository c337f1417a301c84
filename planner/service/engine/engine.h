// The planner service without a transport: all jobs, and the pool that plans for them.
//
//   PlannerEngine engine({.planning_threads = 2}, {&planners, &checker, &store, &clock, &observer});
//   engine.RegisterJob(spec);
//   PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<Job> job, engine.FindJob("gpt"));
//   job->SubmitBatches(request);
//   ... every 100 ms: engine.Tick();
//   engine.Shutdown(absl::Seconds(2));
//
// Thread-safe. Knows nothing of gRPC; time comes from the clock it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job.h"

namespace penstock {

struct EngineOptions {
  // Batches that are planned at a time.
  int planning_threads = 1;
  // Batches that wait for a planning thread, over all jobs.
  size_t queue_capacity = 1024;
  // How long a batch may be planned, or a job prepared, before it is given up with DEADLINE_EXCEEDED.
  absl::Duration planning_limit = absl::Minutes(5);
  // A job that is finished, or failed for good, makes room for a new one.
  size_t max_jobs = 64;
};

// Not owned; must outlive the engine.
struct EngineDependencies {
  const BatchPlannerFactory* planners = nullptr;
  const PlanChecker* checker = nullptr;
  PlanStore* store = nullptr;
  const SteadyClock* clock = nullptr;
  EngineObserver* observer = nullptr;
};

class PlannerEngine {
 public:
  PlannerEngine(const EngineOptions& options, const EngineDependencies& dependencies);
  ~PlannerEngine();
  PlannerEngine(const PlannerEngine&) = delete;
  PlannerEngine& operator=(const PlannerEngine&) = delete;

  // As the method of the service: idempotent for the same specification.
  absl::StatusOr<v1::JobState> RegisterJob(const v1::JobSpec& spec);
  // Possible errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<Job>> FindJob(const std::string& job_id) const;
  // By job id.
  std::vector<std::shared_ptr<Job>> Jobs() const;

  // Plans one batch in the pool and keeps nothing. `done` is called exactly once: at once when the queue is
  // full or the planner stops, else by a thread of the pool or the one that cancels. `owner`: whoever asks;
  // owners take turns. The ticket is null when `done` was called at once.
  using PlanDone = std::function<void(absl::StatusOr<v1::Plan>)>;
  PlanningTicketPtr PlanBatch(const v1::PlanBatchRequest& request, std::string owner, PlanDone done);
  // Nobody waits for the plan any more: it is not computed, or no further.
  void CancelPlanBatch(const PlanningTicketPtr& ticket) { pool_.Cancel(ticket); }

  // Batches that wait for a planning thread.
  size_t queue_depth() const { return pool_.depth(); }

  // Looks for lost workers in all jobs, and for plans that take too long. To be called every 100 ms or so.
  void Tick();

  // Ends all subscriptions with UNAVAILABLE, refuses work, plans what waits for at most `drain` and stops the
  // rest. Blocks until no plan is being made, which is soon after that. Idempotent.
  void Shutdown(absl::Duration drain);

 private:
  absl::StatusOr<v1::Plan> PlanNow(const v1::PlanBatchRequest& request, core::StopToken stop) const;
  bool stopped() const;
  absl::Status MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EngineOptions options_;
  const EngineDependencies dependencies_;
  PlanningPool pool_;

  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
