// A clock that only moves when a test says so.
#pragma once

#include <atomic>
#include <cstdint>

#include "planner/service/engine/clock.h"

namespace penstock {

class FakeClock final : public SteadyClock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(nanoseconds_.load()); }
  absl::Time TimeOfDay() const override {
    return absl::FromUnixSeconds(kStart) + (Now() - absl::UnixEpoch());
  }
  // Every thread computes while time advances.
  absl::Duration ComputedBy(ThreadClock) const override {
    return absl::Nanoseconds(nanoseconds_.load() - idle_.load());
  }
  // Nobody computes meanwhile.
  void AdvanceIdle(absl::Duration by) {
    idle_ += absl::ToInt64Nanoseconds(by);
    Advance(by);
  }
  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }

 private:
  static constexpr int64_t kStart = 1'800'000'000;

  std::atomic<int64_t> nanoseconds_{1'000'000'000};
  std::atomic<int64_t> idle_{0};
};

}  // namespace penstock
