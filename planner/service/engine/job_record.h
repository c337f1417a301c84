// What a job is: who it is, what is true of it, and the lock of that.
//
// What is true of a job is the fold of its events (state/job_state.h). Its parts (job.h) decide from the
// state, under the lock; each decision is an event, which changes the state and goes to the journal
// (AppendLocked). So the store is never called with the lock held, and heartbeats wait for no disk. What must
// not be seen before it is durable waits for the journal: clients' answers (WhenDurable, called in rpc/), the
// planning of batches, the delivery of plans.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/job.pb.h"
#include "planner/service/engine/iteration_values.h"
#include "planner/service/engine/job_lock.h"
#include "planner/service/engine/job_services.h"
#include "planner/service/state/job_state.h"

namespace penstock {

class JobRecord {
 public:
  // Called when an event is durable, without the lock.
  using Committed = std::function<void()>;
  using StoredBatches = decltype(JobChange::batches);

  // `key`: see JobChange. `events`: the sequence of the last event of the state.
  JobRecord(uint64_t key, JobState state, uint64_t events, const JobServices& services);
  JobRecord(const JobRecord&) = delete;
  JobRecord& operator=(const JobRecord&) = delete;

  uint64_t key() const { return key_; }
  const std::string& id() const { return id_; }
  // As it was registered.
  const v1::JobSpec& spec() const { return spec_; }
  bool HasSpec(const v1::JobSpec& spec) const;
  // Whose share of what jobs have in common it uses.
  const std::string& payer() const { return payer_; }
  const JobServices& services() const { return services_; }
  absl::Time TimeOfDay() const { return services_.clock->TimeOfDay(); }
  JobMutex* mutex() const { return &mutex_; }

  // What the record and all other parts of the job are members of; to be called once, first.
  void SetJob(std::weak_ptr<void> job) { job_ = std::move(job); }
  // As long as somebody has it, the job and its parts are there.
  std::shared_ptr<void> KeepJob() const { return job_.lock(); }

  // A place in the pool for one task of the job, and its task, until the end of which the job is there.
  bool TryReserve(PlanningClass kind) const;
  PlanningTicketPtr Run(PlanningClass kind, int64_t bytes, PlanningPool::Task task) const;

  // Journal::WhenDurable of the job.
  void WhenDurable(Journal::Durable durable, Urgency urgency = Urgency::kNow) const {
    services_.journal->WhenDurable(key_, std::move(durable), urgency);
  }

  // The first event, which the state is made from.
  void BeginLocked(const store::v1::Event& registered) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // `event`: what happened. `batches`: those that it accepts.
  void AppendLocked(store::v1::Event event, StoredBatches batches = {}, Committed committed = nullptr,
                    Urgency urgency = Urgency::kNow) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  const JobState& state() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return state_; }
  // Not part of the events: what of its iterations is in memory.
  IterationValues& values() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return values_; }
  const IterationValues& values() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return values_; }

  // All ranks have reported the iteration.
  bool IsDoneLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return iteration < state_.progress().completed();
  }
  // The costs that the next plans are made with, and those of an iteration.
  const v1::CostProfile& CostsInEffectLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  const v1::CostProfile& CostsOfLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // What planners are made from: all strategies that the job ever had, these costs, and all else as it was
  // registered.
  v1::JobSpec SpecLocked(const v1::CostProfile& profile) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // The planner ends.
  void StopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { stopped_ = true; }
  bool stopped() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return stopped_; }
  // Has the store forget the job; nothing of it is written afterwards.
  void DeleteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  bool deleted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return deleted_; }
  // Either of them: nothing is begun any more.
  bool ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) { return stopped_ || deleted_; }
  // What whoever asks for something is told then.
  absl::Status DeletedError() const;
  static absl::Status StoppedError();
  // Whether the job can be changed: it is there, and what happens to it can be written.
  absl::Status CheckLiveLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

 private:
  JobChange ChangeLocked(const store::v1::Event& event, StoredBatches batches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void ApplyLocked(const store::v1::Event& event, JobChange* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void SaveIfDueLocked(JobChange* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Log what changed since the last look.
  void LogNewsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  const uint64_t key_;
  const v1::JobSpec spec_;
  const std::string id_;
  const std::string payer_;
  const std::string serialized_spec_;
  const JobServices services_;
  std::weak_ptr<void> job_;

  mutable JobMutex mutex_;
  JobState state_ ABSL_GUARDED_BY(job_lock);
  IterationValues values_ ABSL_GUARDED_BY(job_lock);
  // Sequence of the last event, and of the one that the last snapshot has.
  uint64_t events_ ABSL_GUARDED_BY(job_lock);
  uint64_t snapshot_events_ ABSL_GUARDED_BY(job_lock);
  bool stopped_ ABSL_GUARDED_BY(job_lock) = false;
  bool deleted_ ABSL_GUARDED_BY(job_lock) = false;
  std::string logged_failure_ ABSL_GUARDED_BY(job_lock);
  uint64_t logged_ready_epoch_ ABSL_GUARDED_BY(job_lock) = 0;
  bool logged_finished_ ABSL_GUARDED_BY(job_lock) = false;
};

}  // namespace penstock
