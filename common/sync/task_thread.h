// A thread that runs tasks one after another, in the order in which they were handed over: a stream of a
// device that the host plays.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "common/sync/sync.h"
#include "common/sync/thread_name.h"

namespace penstock {

class TaskThread {
 public:
  explicit TaskThread(ThreadName name) : thread_([this, name] { Run(name); }) {}
  // Tasks that have not begun are dropped; blocks until the one that has is done.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Does not block. Any thread.
  void Add(std::function<void()> task);

 private:
  void Run(ThreadName name);

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  // Last, so that it finds the others.
  std::thread thread_;
};

}  // namespace penstock
