// A bounded queue between two threads that either side can end.
//
//   ClosableQueue<Program> queue(4);
//   queue.Push(std::move(program));        // waits for room
//   queue.Close(absl::UnavailableError("the planner is gone"));   // both sides return this from now on
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"

namespace penstock::worker {

// Thread-safe. Whoever blocks here is woken by Close, so its owner must call it.
template <typename T>
class ClosableQueue {
 public:
  explicit ClosableQueue(size_t capacity) : capacity_(capacity) {}

  // Blocks while the queue is full. Possible errors: the status given to Close; the value is left then
  // (TakeLeft).
  absl::Status Push(T value) {
    MutexLock lock(&mutex_);
    while (closed_.ok() && values_.size() >= capacity_) changed_.Wait(&mutex_);
    values_.push_back(std::move(value));
    changed_.SignalAll();
    return closed_;
  }

  // Blocks while the queue is empty. `waited`, when given, is how long that was: exactly 0 when a value was
  // there. Possible errors: the status given to Close, even when values are left.
  absl::StatusOr<T> Pop(absl::Duration* waited = nullptr) {
    MutexLock lock(&mutex_);
    absl::Duration empty = absl::ZeroDuration();
    if (closed_.ok() && values_.empty()) {
      const auto started = std::chrono::steady_clock::now();
      while (closed_.ok() && values_.empty()) changed_.Wait(&mutex_);
      empty = absl::FromChrono(std::chrono::steady_clock::now() - started);
    }
    if (!closed_.ok()) return closed_;
    if (waited != nullptr) *waited = empty;
    T value = std::move(values_.front());
    values_.pop_front();
    changed_.SignalAll();
    return value;
  }

  // A copy of what Pop returns next, where it is there.
  std::optional<T> Front() const {
    MutexLock lock(&mutex_);
    if (!closed_.ok() || values_.empty()) return std::nullopt;
    return values_.front();
  }

  // What is left in a queue that was closed, in order; nothing before.
  std::deque<T> TakeLeft() {
    MutexLock lock(&mutex_);
    std::deque<T> left;
    if (!closed_.ok()) left.swap(values_);
    return left;
  }

  // `reason` is an error. The first one counts.
  void Close(const absl::Status& reason) {
    MutexLock lock(&mutex_);
    if (closed_.ok()) closed_ = reason;
    changed_.SignalAll();
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<T> values_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::worker
