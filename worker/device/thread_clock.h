// How long the calling thread has had a core.
#pragma once

#include <cstdint>
#include <ctime>

namespace penstock::worker {

// Nanoseconds since some time that is the same for all calls of a thread.
inline int64_t ThreadCoreNs() {
  constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return kNanosecondsPerSecond * time.tv_sec + time.tv_nsec;
}

}  // namespace penstock::worker
