// How a caller ends a computation of the core before it is done.
//
//   StopFlag flag;  // outlives the call; any thread may call flag.Set()
//   absl::StatusOr<v1::Plan> plan = planner->MakePlan(batch, RunSerially, StopToken(&flag));  // CANCELLED
//   then
//
// Cooperative: every loop that may take long asks its token and leaves when it is stopped. What it leaves
// behind is not valid, and nobody may look at it: whoever has a token asks it again before it returns a
// result. As a flag that is set stays set, a result that was returned was made without a stop. The core has
// no clock; deadlines are for the caller to keep.
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

  // Thread-safe; never taken back.
  void Set() { set_.store(true, std::memory_order_release); }
  bool IsSet() const {
    if (set_.load(std::memory_order_acquire)) return true;
    return counts_ && CountDown();
  }

  // For tests, of a flag that counts: how often it may still be asked.
  int64_t asks_left() const { return asks_left_.load(); }

 private:
  bool CountDown() const {
    if (asks_left_.fetch_sub(1) > 0) return false;
    set_.store(true, std::memory_order_release);
    return true;
  }

  mutable std::atomic<bool> set_ = false;
  const bool counts_ = false;
  mutable std::atomic<int64_t> asks_left_ = 0;
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
