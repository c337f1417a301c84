// Time that never goes back, as a parameter: the engine asks it, tests turn it by hand (fake_clock.h).
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace penstock {

class SteadyClock {
 public:
  virtual ~SteadyClock() = default;
  // Only differences mean something. Thread-safe.
  virtual absl::Time Now() const = 0;
};

// The monotonic clock of the machine.
class MachineClock final : public SteadyClock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace penstock
