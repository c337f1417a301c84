// Mutex, MutexLock and CondVar with clang's thread-safety annotations.
//
//   class Counter {
//     Mutex mutex_;
//     int value_ ABSL_GUARDED_BY(mutex_) = 0;
//   };
//   MutexLock lock(&mutex_);
//
// Built on absl::Mutex; on the standard library under thread sanitizer, which reports false races for data
// that the packaged (uninstrumented) absl::Mutex guards.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#if defined(__SANITIZE_THREAD__)
#define PENSTOCK_STD_SYNC 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PENSTOCK_STD_SYNC 1
#endif
#endif

#ifdef PENSTOCK_STD_SYNC
#include <chrono>
#include <condition_variable>
#include <mutex>
#else
#include "absl/synchronization/mutex.h"
#endif

namespace penstock {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
#ifdef PENSTOCK_STD_SYNC
    mutex_.lock();
#else
    mutex_.Lock();
#endif
  }

  void Unlock() ABSL_UNLOCK_FUNCTION() {
#ifdef PENSTOCK_STD_SYNC
    mutex_.unlock();
#else
    mutex_.Unlock();
#endif
  }

  void AssertHeld() ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
#ifdef PENSTOCK_STD_SYNC
  std::mutex mutex_;
#else
  absl::Mutex mutex_;
#endif
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mutex_;
};

class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
#ifdef PENSTOCK_STD_SYNC
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
#else
    condition_.Wait(&mutex->mutex_);
#endif
  }

  // Returns true when the time ran out. May wake early: test the condition in a loop.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
#ifdef PENSTOCK_STD_SYNC
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    // wait_until on the system clock: the thread sanitizer of clang 14 knows pthread_cond_timedwait only.
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout);
    const bool expired = condition_.wait_until(lock, deadline) == std::cv_status::timeout;
    lock.release();
    return expired;
#else
    return condition_.WaitWithTimeout(&mutex->mutex_, timeout);
#endif
  }

  void Signal() {
#ifdef PENSTOCK_STD_SYNC
    condition_.notify_one();
#else
    condition_.Signal();
#endif
  }

  void SignalAll() {
#ifdef PENSTOCK_STD_SYNC
    condition_.notify_all();
#else
    condition_.SignalAll();
#endif
  }

 private:
#ifdef PENSTOCK_STD_SYNC
  std::condition_variable condition_;
#else
  absl::CondVar condition_;
#endif
};

}  // namespace penstock
