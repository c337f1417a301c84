#include "planner/service/engine/planning_pool.h"

#include <chrono>
#include <utility>

#include "absl/time/clock.h"

namespace penstock {

PlanningPool::PlanningPool(int threads, size_t capacity) : capacity_(capacity) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

PlanningPool::~PlanningPool() { Shutdown(absl::ZeroDuration()); }

bool PlanningPool::TryReserve(size_t count) {
  MutexLock lock(&mutex_);
  if (stopped_ || queue_.size() + reserved_ + count > capacity_) return false;
  reserved_ += count;
  return true;
}

void PlanningPool::Release(size_t count) {
  MutexLock lock(&mutex_);
  reserved_ -= count;
}

void PlanningPool::Run(Task task) {
  {
    MutexLock lock(&mutex_);
    --reserved_;
    if (!stopped_) {
      queue_.push_back(std::move(task));
      changed_.SignalAll();
      return;
    }
  }
  task(/*cancelled=*/true);
}

size_t PlanningPool::depth() const {
  MutexLock lock(&mutex_);
  return queue_.size();
}

PlanningPool::Task PlanningPool::Next() {
  MutexLock lock(&mutex_);
  while (queue_.empty() && !stopped_) changed_.Wait(&mutex_);
  if (queue_.empty()) return nullptr;
  Task task = std::move(queue_.front());
  queue_.pop_front();
  changed_.SignalAll();  // Shutdown waits for an empty queue
  return task;
}

void PlanningPool::Work() {
  while (Task task = Next()) task(/*cancelled=*/false);
}

void PlanningPool::Shutdown(absl::Duration drain) {
  std::deque<Task> cancelled;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(drain);
    while (!queue_.empty() && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitWithTimeout(&mutex_, absl::FromChrono(deadline - std::chrono::steady_clock::now()));
    }
    cancelled.swap(queue_);
  }
  for (Task& task : cancelled) task(/*cancelled=*/true);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace penstock
