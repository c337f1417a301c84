// The clocks that passes are measured with, and what makes nanoseconds of training of their readings.
//
//   MeasuringTime time(device, {.threads = 1});
//   ... StageRun::Create(..., time.clocks()) ...
//   const double ns = read * time.Scale();
#pragma once

#include "worker/profile/core_share.h"
#include "worker/profile/measured_device.h"
#include "worker/profile/paced_clock.h"

namespace penstock::worker {

struct MeasuringThreads {
  // Of the host, that compute.
  int threads = 1;
  // Several ranks take turns on a core, in training and now: waiting for the core is part of their time.
  bool shared_cores = false;
};

class MeasuringTime {
 public:
  // `clock` measures all, and is read when the device has been waited for; none: the thread's own time where
  // one thread of the host computes all on a core of its own, so that a stranger's work on that core is not
  // counted, and else the time that passes. `first_pulse`: as of PacedClock.
  MeasuringTime(const MeasuredDevice& device, const MeasuringThreads& threads, NanosecondClock clock,
                double first_pulse = 0);
  MeasuringTime(const MeasuringTime&) = delete;
  MeasuringTime& operator=(const MeasuringTime&) = delete;

  const MeasuringClocks& clocks() const { return clocks_; }
  double first_pulse() const { return pace_.first_pulse(); }
  // By which readings are multiplied: at the mean speed that the machine had so far (paced_clock.h) and, with
  // shared cores, by the part of its core that the thread got.
  double Scale() const { return pace_.Level() * (shares_core_ ? share_.Factor() : 1); }

 private:
  const bool shares_core_;
  CoreShare share_;
  PacedClock pace_;
  MeasuringClocks clocks_;
};

}  // namespace penstock::worker
