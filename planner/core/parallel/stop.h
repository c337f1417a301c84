// How a caller ends a computation of the core before it is done, or has it wait while others compute.
//
//   StopFlag flag;  // outlives the call; any thread may call flag.Set()
//   absl::StatusOr<v1::Plan> plan = planner->MakePlan(batch, RunSerially, StopToken(&flag));  // CANCELLED
//   then
//
// Cooperative: every loop that may take long asks its token and leaves when it is stopped. What it leaves
// behind is not valid, and nobody may look at it: whoever has a token asks it again before it returns a
// result. As a flag that is set stays set, a result that was returned was made without a stop. The core has
// no clock; deadlines are for the caller to keep.
//
//   const PausesHere pauses(&flag);  // on the thread that is about to compute
//   ...
//   flag.Pause();   // another thread: from the next time that it asks, the computation waits
//   flag.Resume();  // and goes on
//
// Threads that help with a part of the computation do not wait: others may need them.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace penstock::core {

class StopFlag {
 public:
  StopFlag() = default;
  // For tests: sets itself when it is asked once more than so many times.
  explicit StopFlag(int64_t asks) : counts_(true), asks_left_(asks) {}
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;

  // Thread-safe; never taken back. Ends a pause.
  void Set() {
    state_.fetch_or(kSet, std::memory_order_release);
    state_.notify_all();
  }
  // Thread-safe; one after the other.
  void Pause() { state_.fetch_or(kPaused, std::memory_order_release); }
  void Resume() {
    state_.fetch_and(~kPaused, std::memory_order_release);
    state_.notify_all();
  }
  bool IsSet() const {
    const uint32_t state = state_.load(std::memory_order_acquire);
    if (state == 0) return counts_ && CountDown();
    return (state & kSet) != 0 || IsSetBehindPause();
  }

  // For tests, of a flag that counts: how often it may still be asked.
  int64_t asks_left() const { return asks_left_.load(); }

 private:
  friend class PausesHere;
  static constexpr uint32_t kSet = 1;
  static constexpr uint32_t kPaused = 2;

  bool CountDown() const {
    if (asks_left_.fetch_sub(1) > 0) return false;
    state_.fetch_or(kSet, std::memory_order_release);
    return true;
  }
  bool IsSetBehindPause() const {
    if (pauses_here != this) return false;
    state_.wait(kPaused, std::memory_order_acquire);
    return IsSet();
  }

  // The flag at whose pauses this thread waits.
  static inline thread_local const StopFlag* pauses_here = nullptr;

  mutable std::atomic<uint32_t> state_ = 0;
  const bool counts_ = false;
  mutable std::atomic<int64_t> asks_left_ = 0;
};

// While it lives, its thread waits when it asks the flag during a pause. One a thread at a time.
class PausesHere {
 public:
  explicit PausesHere(const StopFlag* flag) { StopFlag::pauses_here = flag; }
  ~PausesHere() { StopFlag::pauses_here = nullptr; }
  PausesHere(const PausesHere&) = delete;
  PausesHere& operator=(const PausesHere&) = delete;
};

// Given by value. Not owned: the flag must outlive every call that has the token.
class StopToken {
 public:
  // Never stops.
  StopToken() = default;
  explicit StopToken(const StopFlag* flag) : flag_(flag) {}

  bool stopped() const { return flag_ != nullptr && flag_->IsSet(); }
  // CANCELLED when it is stopped.
  absl::Status status() const {
    return stopped() ? absl::CancelledError("planning was stopped") : absl::OkStatus();
  }

 private:
  const StopFlag* flag_ = nullptr;
};

}  // namespace penstock::core
