// Threads that plan, behind fair queues of bounded length.
//
// A caller first reserves places, then fills them, so that a request takes all its places or none:
//
//   if (!pool.TryReserve(PlanningClass::kJobBatch, job_id, 2)) return absl::ResourceExhaustedError(...);
//   pool.Run({PlanningClass::kJobBatch, job_id, limit}, [...](const PlanningTicket& ticket) {
//     if (!ticket.status().ok()) return Tell(ticket.status());  // given up before its turn
//     auto plan = planner->MakePlan(batch, ticket.stop());
//     if (!plan.ok()) return Tell(ticket.Explain(plan.status()));  // says who stopped it
//     ...
//   });
//
// Whose turn it is: batches of live jobs before preparations of jobs before what-ifs. Nobody starves: a
// preparation that has been passed over 3 times, or a what-if 7 times, is next, once the others have computed
// so many times what it did in its last turn. Within a class the owner is next whose tasks have computed
// least (owner_shares.h): who plans little waits for little, however much others plan, and who always has
// something waiting gets as much time as others that have. The jobs of one owner take turns, and the tasks of
// one job begin in the order in which they came. Of several threads one is for batches of live jobs alone; of
// the others, where there are several, preparations leave one to what-ifs and these one to preparations.
// Places are shared too: one owner takes three quarters of them at most, what-ifs together take half.
//
// A turn is 20 ms of computing, so that nobody waits for all of a long task of others: where it is another's
// turn, the task is paused (core/parallel/stop.h) and goes on when it is its owner's again.
//
// Memory is shared as well (planning_memory.h): a task says what it will take, and begins when there is room
// for it beside those that have begun; alone it may begin in any case. Others pass it until 16 have, then
// small ones alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "planner/service/engine/clock.h"
#include "planner/service/engine/owner_shares.h"
#include "planner/service/engine/planning_memory.h"
#include "planner/service/engine/planning_ticket.h"
#include "planner/service/engine/turn_queue.h"

namespace penstock {

class PlanningPool {
 public:
  // Called once: by a thread of the pool, or with a ticket that is stopped by the one that calls Cancel or
  // Shutdown; then it must not compute but only tell whoever waits.
  using Task = std::function<void(const PlanningTicket&)>;

  // `threads` >= 1. `capacity`: tasks that wait or are reserved; running ones do not count. `clock` measures
  // limits and what tasks compute, and must outlive the pool. `memory_bytes`: of all tasks that have begun.
  // `computed`: told what tasks compute, when StopOverdue is called and, before another begins in its place,
  // when one ends; without the time for which it held its thread while others had the core.
  // `begins`: called when a task has begun, by its thread.
  using Computed = std::function<void(const PlanningWork&, absl::Duration)>;
  using Begins = std::function<void()>;
  PlanningPool(int threads, size_t capacity, const SteadyClock* clock, int64_t memory_bytes = INT64_MAX,
               Computed computed = nullptr, Begins begins = nullptr);
  // Shuts down without draining.
  ~PlanningPool();
  PlanningPool(const PlanningPool&) = delete;
  PlanningPool& operator=(const PlanningPool&) = delete;

  // False when the queue has no room for `count` more of the owner, or after Shutdown.
  bool TryReserve(PlanningClass kind, const std::string& owner, size_t count);
  // Gives places back that are not used after all.
  void Release(PlanningClass kind, const std::string& owner, size_t count);
  // Fills one place that its owner has reserved in its class.
  PlanningTicketPtr Run(PlanningWork work, Task task);

  // Stops a task: one that waits is taken out of the queue and called at once, on this thread; one that
  // computes ends as soon as it sees its token. Nothing for one that has ended.
  void Cancel(const PlanningTicketPtr& ticket);
  // Stops tasks that have held their thread up to their limit; to be called every 100 ms or so.
  void StopOverdue();

  // The process has no memory left: of the tasks that compute, stops the one that said that it takes most.
  // One that was stopped and has not ended yet is waited for: then nothing is stopped. False: nothing
  // computes.
  bool StopLargest();

  // More than that are never reserved at once for one owner.
  size_t most_of_owner() const { return capacity_ - capacity_ / 4; }
  // Tasks that wait.
  size_t depth() const;
  // Whether a task has begun and not ended.
  bool computes() const;

  // Takes no more; goes on for at most `drain`, then stops what waits and what computes. Blocks until the
  // running tasks have ended, which is soon, as they see their tokens. Idempotent.
  void Shutdown(absl::Duration drain);

 private:
  struct Entry {
    PlanningTicketPtr ticket;
    Task task;
  };
  // One that has begun and not ended.
  struct Begun {
    PlanningTicketPtr ticket;
    // OwnerShares' of its class.
    uint64_t number = 0;
    ThreadClock thread = {};
    // What its thread had computed before it, and before its turn.
    absl::Duration before = {};
    absl::Duration before_turn = {};
    // What `computed` was told of it.
    absl::Duration told = {};
    // Without its pauses.
    absl::Time started = {};
    absl::Time paused = {};
  };
  struct Owner {
    TurnQueue<Entry> tasks;
    // The one that was paused first goes on first, before any other begins.
    std::deque<Begun> paused;
    size_t reserved = 0;
    // When it came, or last had its turn, among the owners of its class.
    uint64_t turn = 0;

    bool waits() const { return !tasks.empty() || !paused.empty(); }
    bool is_gone() const { return !waits() && reserved == 0; }
  };
  // The tasks of a class that wait.
  struct Line {
    // With a task or a reservation each.
    std::map<std::string, Owner> owners;
    uint64_t turns = 0;
    OwnerShares shares;
    size_t reserved = 0;
    size_t waiting = 0;
    size_t paused = 0;
    // Turns that others had since this class had its last one, while it waited; what they computed in them,
    // and what it did in its last one.
    int passed_over = 0;
    absl::Duration others_computed;
    absl::Duration last_turn;
    // Tasks of others that began while a thread was free for the one that is first, and no memory.
    int without_room = 0;

    bool waits() const { return waiting + paused > 0; }
  };

  void Work();
  // Waits for the next task for the thread; false when the pool is stopped and empty.
  bool Next(ThreadClock thread, Entry* entry);
  // The class that is next; kPlanningClasses when none may run now.
  size_t NextClassLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayRunLocked(size_t kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasThreadLocked(size_t kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PlanningMemory::Room RoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A task has waited for room for so long that none but small ones may begin before it.
  bool IsWaitedForLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The owner whose next task is next; the end where none may go on or begin now.
  std::map<std::string, Owner>::const_iterator NextOwnerLocked(size_t kind) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the class its turn: a task that was paused goes on, or one for `thread` begins.
  std::optional<Entry> TakeLocked(size_t kind, ThreadClock thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountTurnLocked(size_t kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountBeginningLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndTurnLocked(const Begun& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Pauses those of the tasks that run whose turn is over, where others are next.
  void GiveTurnsAnewLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether another is next when this one, of `running_`, waits; then it does.
  bool PauseLocked(size_t running) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs or is paused; it is taken out.
  Begun TakeEndedLocked(const PlanningTicket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseLocked(PlanningClass kind, const std::string& owner, size_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const PlanningTicket& ticket);
  absl::Duration ComputedBy(const Begun& task) const { return clock_->ComputedBy(task.thread) - task.before; }
  // What `computed` was not told of a task, and is now.
  absl::Duration TellOf(Begun& task) const;
  absl::Duration TellOf(const PlanningTicket& ticket);
  // Until something has changed, or a turn is over: of the threads that wait one looks after that.
  void WaitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Before each decision: owners' totals grow while their tasks compute.
  void CountComputedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a task out of its line; false when it does not wait.
  bool RemoveLocked(const PlanningTicketPtr& ticket, Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Entry> TakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t WaitingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t PausedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `each` with every task that has begun.
  void ForEachBegunLocked(absl::FunctionRef<void(const Begun&)> each) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  // That compute at a time. There are more, which hold tasks that are paused.
  const size_t most_running_;
  // Threads that may be busy with what is not of a live job.
  const size_t shared_threads_;
  const SteadyClock* const clock_;
  const PlanningMemory memory_;
  const Computed computed_;
  const Begins begins_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_timekeeper_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<Line, kPlanningClasses> lines_ ABSL_GUARDED_BY(mutex_);
  std::vector<Begun> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace penstock
