// How long to wait before the next try: longer each time, and never in step with others who lost the same
// server.
//
//   Backoff backoff(absl::Milliseconds(100), absl::Seconds(2));
//   while (!Try().ok()) Wait(backoff.Next());   // 50 to 100 ms, 100 to 200 ms, ... 1 to 2 s
//   backoff.Reset();                            // it went well: begin anew
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace penstock {

// Not thread-safe.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration longest, uint32_t seed = std::random_device{}())
      : first_(first), longest_(longest), pause_(first), random_(seed) {}

  // Between half of the pause and all of it; pauses double up to the longest.
  absl::Duration Next() {
    const absl::Duration pause = pause_;
    pause_ = std::min(pause_ * 2, longest_);
    return pause * std::uniform_real_distribution<double>(0.5, 1)(random_);
  }

  void Reset() { pause_ = first_; }

 private:
  const absl::Duration first_;
  const absl::Duration longest_;
  absl::Duration pause_;
  std::minstd_rand random_;
};

}  // namespace penstock
