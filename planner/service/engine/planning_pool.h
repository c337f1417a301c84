// Threads that plan, behind a queue of bounded length.
//
// A caller first reserves places, then fills them, so that a request takes all its places or none:
//
//   if (!pool.TryReserve(2)) return absl::ResourceExhaustedError(...);
//   pool.Run(first);
//   pool.Run(second);
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/sync/sync.h"

namespace penstock {

class PlanningPool {
 public:
  // Called once, by a thread of the pool, or with `cancelled` set by the one that calls Shutdown: then it
  // must not compute but only tell whoever waits.
  using Task = std::function<void(bool cancelled)>;

  // `threads` >= 1. `capacity`: tasks that wait or are reserved; running ones do not count.
  PlanningPool(int threads, size_t capacity);
  // Shuts down without draining.
  ~PlanningPool();
  PlanningPool(const PlanningPool&) = delete;
  PlanningPool& operator=(const PlanningPool&) = delete;

  // False when the queue has no room for `count` more, or after Shutdown.
  bool TryReserve(size_t count);
  // Gives places back that are not used after all.
  void Release(size_t count);
  // Fills one reserved place. First come, first served.
  void Run(Task task);

  // More than that are never reserved at once.
  size_t capacity() const { return capacity_; }
  // Tasks that wait.
  size_t depth() const;

  // Takes no more; runs what waits for at most `drain`, then cancels the rest. Blocks until the running tasks
  // have ended. Idempotent.
  void Shutdown(absl::Duration drain);

 private:
  void Work();
  // The next task, or null when the pool is stopped and empty.
  Task Next();

  mutable Mutex mutex_;
  CondVar changed_;
  const size_t capacity_;
  size_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace penstock
