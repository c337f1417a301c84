// A token bucket of a minute: what may be taken comes in evenly, and a minute's worth is saved at most.
//
//   MinuteBucket samples(1000, clock.Now());
//   if (absl::Duration wait = samples.Wait(clock.Now()); wait > absl::ZeroDuration()) return Refuse(wait);
//   samples.Take(64, clock.Now());
//
// Whoever has anything left may take as much as it wants, and owes the rest: so what is larger than a
// minute's worth is not refused for ever, and what is known only afterwards can be taken, too. Over time
// nobody takes more than comes in. Not thread-safe.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace penstock {

class MinuteBucket {
 public:
  // Full at first. `a_minute` 0: no limit.
  MinuteBucket(double a_minute, absl::Time now) : a_minute_(a_minute), left_(a_minute), at_(now) {}

  // Until something may be taken, in whole seconds; zero: now.
  absl::Duration Wait(absl::Time now) const {
    const double left = Left(now);
    if (a_minute_ <= 0 || left > 0) return absl::ZeroDuration();
    return absl::Floor(absl::Minutes(-left / a_minute_), absl::Seconds(1)) + absl::Seconds(1);
  }

  // May be more than is left.
  void Take(double amount, absl::Time now) {
    if (a_minute_ <= 0) return;
    left_ = Left(now) - amount;
    at_ = now;
  }

  // Of a minute's worth; more than it where something is owed. 0 without a limit.
  double Used(absl::Time now) const { return a_minute_ > 0 ? a_minute_ - Left(now) : 0; }

  bool IsFull(absl::Time now) const { return Left(now) >= a_minute_; }

 private:
  double Left(absl::Time now) const {
    return std::min(a_minute_, left_ + a_minute_ * absl::ToDoubleMinutes(now - at_));
  }

  const double a_minute_;
  // At `at_`; below 0: owed.
  double left_;
  absl::Time at_;
};

}  // namespace penstock
