// Time as a parameter: the engine asks it, tests turn it by hand (fake_clock.h).
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace penstock {

class SteadyClock {
 public:
  virtual ~SteadyClock() = default;
  // Never goes back; only differences mean something. Thread-safe.
  virtual absl::Time Now() const = 0;
  // The time of day, for people and for ages across restarts of the planner. Thread-safe.
  virtual absl::Time TimeOfDay() const = 0;
};

// The clocks of the machine.
class MachineClock final : public SteadyClock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time TimeOfDay() const override { return absl::Now(); }
};

}  // namespace penstock
