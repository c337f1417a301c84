// A clock that goes on by what LibTorch computes, for tests that compare the times of passes: the same work
// takes the same time on every machine, however busy it is.
//
//   const WorkClock clock;
//   MeasureProfile(config, seconds, /*threads=*/1, MeasuredDevice(), [&] { return clock.Now(); });
#pragma once

#include <cstdint>

namespace penstock::worker {

// One at a time in a process.
class WorkClock {
 public:
  WorkClock();
  ~WorkClock();
  WorkClock(const WorkClock&) = delete;
  WorkClock& operator=(const WorkClock&) = delete;

  // Multiply-adds of all products since the process began, on whatever thread, and one for each element that
  // another operator wrote. Views are free. What does not go through LibTorch's operators is not seen: loops
  // of our own.
  double Now() const;

 private:
  const uint64_t handle_;
};

}  // namespace penstock::worker
