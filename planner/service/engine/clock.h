// Time as a parameter: the engine asks it, tests turn it by hand (fake_clock.h).
#pragma once

#include <pthread.h>
#include <time.h>

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace penstock {

// A thread, for whoever asks what it has computed. Valid as long as the thread runs.
using ThreadClock = clockid_t;

inline ThreadClock ClockOfThisThread() {
  ThreadClock clock = {};
  pthread_getcpuclockid(pthread_self(), &clock);
  return clock;
}

class SteadyClock {
 public:
  virtual ~SteadyClock() = default;
  // Never goes back; only differences mean something. Thread-safe.
  virtual absl::Time Now() const = 0;
  // The time of day, for people and for ages across restarts of the planner. Thread-safe.
  virtual absl::Time TimeOfDay() const = 0;
  // What a thread has computed since it began: time on a core alone. Thread-safe.
  virtual absl::Duration ComputedBy(ThreadClock thread) const = 0;
};

// The clocks of the machine.
class MachineClock final : public SteadyClock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time TimeOfDay() const override { return absl::Now(); }
  absl::Duration ComputedBy(ThreadClock thread) const override {
    timespec time = {};
    clock_gettime(thread, &time);
    return absl::DurationFromTimespec(time);
  }
};

}  // namespace penstock
