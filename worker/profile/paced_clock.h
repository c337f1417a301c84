// A clock for machines whose speed changes while a profile is measured.
//
// A host that others use is 20 to 30 % faster in one second than in another. Shapes that are measured one
// after the other would then differ by that, and a fit to them would find, say, attention twice as dear as it
// is. So the clock runs the same small piece of work again and again, and counts the time between two
// readings by how fast that work was around them: in units of the time that it took at first. `Level` turns
// these into nanoseconds of the mean speed.
#pragma once

#include <cstdint>
#include <functional>

#include "worker/profile/measured_device.h"

namespace penstock::worker {

class PacedClock {
 public:
  // `work` is done after a reading when it was last done long enough ago; its time is not counted. Without
  // work it is `clock`. `first_pulse`: of another clock, in whose units this one counts; 0: in its own.
  PacedClock(NanosecondClock clock, std::function<void()> work, double first_pulse = 0);

  double Now();
  // Mean time of the work so far / its time at first.
  double Level() const;
  // Nanoseconds of the work at first; 0 without work.
  double first_pulse() const { return first_pulse_; }

 private:
  // Nanoseconds of the work now.
  double Pulse();

  NanosecondClock clock_;
  std::function<void()> work_;
  double first_pulse_ = 0;
  double last_pulse_ = 0;
  double pulse_sum_ = 0;
  int64_t pulses_ = 0;
  // Of `clock_`, after the last pulse and at the last reading.
  double pulsed_at_ = 0;
  double read_at_ = 0;
  double paced_ns_ = 0;
};

// Of the size at which a pulse is a millisecond or two: a product as in the layers of a model, on the CPU.
std::function<void()> SmallProduct();

}  // namespace penstock::worker
