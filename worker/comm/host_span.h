// A span of time on the host's steady clock.
#pragma once

#include <chrono>

namespace penstock::worker {

struct HostSpan {
  std::chrono::steady_clock::time_point start = {};
  std::chrono::steady_clock::time_point end = {};
};

}  // namespace penstock::worker
