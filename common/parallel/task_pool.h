// Threads that help whoever has many small tasks: loops of several callers run on them side by side.
//
//   TaskPool pool(DefaultThreads());
//   pool.Run(static_cast<int>(inputs.size()), [&](int i) { outputs[i] = Work(inputs[i]); });
//
// The thread that calls Run works too. So a loop never waits for a free thread, it may be run from inside a
// task, and a pool of one thread runs everything on the caller.
//
// For tasks of about 0.1 ms and more: taking a task locks a mutex, and waking a helper takes microseconds
// (tests/bench/task_pool_bench.cc). Nobody spins.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/sync/sync.h"

namespace penstock {

// Threads that the machine runs at once, at least 1.
int DefaultThreads();

class TaskPool {
 public:
  // `threads` >= 1: how many work at a time, callers of Run included; more only while there are more callers.
  // `begin`: what each thread of the pool does first.
  explicit TaskPool(int threads, const std::function<void()>& begin = nullptr);
  // No Run may be under way.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  int threads() const { return threads_; }

  // Calls task(0) .. task(count - 1), each once, on this thread and on free ones of the pool, and returns
  // when all have ended. Tasks start in this order. Of several loops the free threads take tasks in turn.
  void Run(int count, absl::FunctionRef<void(int)> task);

  // Run as a function, for code that must not know threads (planner/core/parallel). Valid as long as the
  // pool.
  std::function<void(int, absl::FunctionRef<void(int)>)> AsFunction();

 private:
  struct Loop {
    const absl::FunctionRef<void(int)> task;
    const int count;
    int next = 0;
    int running = 0;
    CondVar ended = {};
  };

  // What a thread of the pool does.
  void Help();
  // Takes the next task of the loop and runs it, outside of the lock.
  void RunNextLocked(Loop* loop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Each thread that takes a task wakes one more while there is work, so that no one wakes them all.
  void WakeOneLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int threads_;
  Mutex mutex_;
  CondVar changed_;
  // Loops with tasks that nobody has taken; the first is next.
  std::deque<Loop*> open_ ABSL_GUARDED_BY(mutex_);
  // Threads in tasks or between two of them.
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> helpers_;
};

}  // namespace penstock
