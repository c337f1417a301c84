// Lets simulated time pass on the wall clock: who waits for a simulated moment waits until an absolute moment
// of the wall clock, so that what the host takes in between is never added up.
//
//   Pace pace(clock.get(), /*wall seconds for a simulated second*/ 0.1);
//   pace.Begin(start_ns);                             // at the start of every iteration
//   PENSTOCK_RETURN_IF_ERROR(pace.WaitUntil(end_ns));
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace penstock::worker {

class WallClock {
 public:
  virtual ~WallClock() = default;
  // Steady; from any origin.
  virtual int64_t NowNs() const = 0;
  // Possible errors: why it was cancelled.
  virtual absl::Status WaitUntil(int64_t deadline_ns) = 0;
  // Ends WaitUntil, now and later. Any thread; idempotent.
  virtual void Cancel(const absl::Status& why) = 0;
};

std::unique_ptr<WallClock> MakeWallClock();

// One thread, but for Cancel.
class Pace {
 public:
  // `clock` must outlive the pace.
  Pace(WallClock* clock, double time_scale) : clock_(*clock), time_scale_(time_scale) {}

  // An iteration starts at this simulated time. One that starts late, because its program came late, say, has
  // all of its time before it: it is not hurried to make up for that.
  void Begin(int64_t simulated_ns);

  // Returns at once where the host is late. Possible errors: why it was cancelled.
  absl::Status WaitUntil(int64_t simulated_ns);

  void Cancel(const absl::Status& why) { clock_.Cancel(why); }

 private:
  int64_t DeadlineNs(int64_t simulated_ns) const;

  WallClock& clock_;
  const double time_scale_;
  // What stands for simulated time 0 on the wall clock.
  int64_t origin_ns_ = INT64_MIN / 2;
};

}  // namespace penstock::worker
