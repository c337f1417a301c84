#include "common/parallel/task_pool.h"

#include <algorithm>

namespace penstock {
namespace {

// The pool that this thread works for, if any: a loop inside a task takes no further thread.
thread_local const TaskPool* works_for = nullptr;

}  // namespace

int DefaultThreads() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

TaskPool::TaskPool(int threads, const std::function<void()>& begin) : threads_(threads) {
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this, begin] {
      if (begin != nullptr) begin();
      Help();
    });
  }
}

TaskPool::~TaskPool() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  }
  for (std::thread& helper : helpers_) helper.join();
}

std::function<void(int, absl::FunctionRef<void(int)>)> TaskPool::AsFunction() {
  return [this](int count, absl::FunctionRef<void(int)> task) { Run(count, task); };
}

void TaskPool::Run(int count, absl::FunctionRef<void(int)> task) {
  if (threads_ == 1 || count <= 1) {
    for (int i = 0; i < count; ++i) task(i);
    return;
  }
  Loop loop{task, count};
  const TaskPool* const before = works_for;
  MutexLock lock(&mutex_);
  // A task that runs a loop of its own counts as one thread, and waits for that loop only.
  if (before != this) ++working_;
  works_for = this;
  open_.push_back(&loop);
  while (loop.next < loop.count) RunNextLocked(&loop);
  works_for = before;
  if (before != this) {
    --working_;
    WakeOneLocked();
  }
  while (loop.running > 0) loop.ended.Wait(&mutex_);
}

void TaskPool::Help() {
  works_for = this;
  MutexLock lock(&mutex_);
  while (!stopped_) {
    if (open_.empty() || working_ >= threads_) {
      changed_.Wait(&mutex_);
      continue;
    }
    ++working_;
    // Its turn comes again after the other loops.
    Loop* const loop = open_.front();
    open_.pop_front();
    open_.push_back(loop);
    RunNextLocked(loop);
    --working_;
  }
}

void TaskPool::RunNextLocked(Loop* loop) {
  const int taken = loop->next++;
  if (loop->next == loop->count) open_.erase(std::find(open_.begin(), open_.end(), loop));
  ++loop->running;
  WakeOneLocked();
  mutex_.Unlock();
  loop->task(taken);
  mutex_.Lock();
  if (--loop->running == 0 && loop->next == loop->count) loop->ended.Signal();
}

void TaskPool::WakeOneLocked() {
  if (!open_.empty() && working_ < threads_) changed_.Signal();
}

}  // namespace penstock
