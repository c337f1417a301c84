// A clock that only moves when a test says so.
#pragma once

#include <atomic>
#include <cstdint>

#include "planner/service/engine/clock.h"

namespace penstock {

class FakeClock final : public SteadyClock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(nanoseconds_.load()); }
  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> nanoseconds_{1'000'000'000};
};

}  // namespace penstock
