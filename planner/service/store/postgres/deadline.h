// A moment of the monotonic clock by which something must be done, and the means to end it earlier.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "common/process/file_descriptor.h"

namespace penstock {

class Deadline {
 public:
  static Deadline After(absl::Duration time) {
    // A day stands for "for ever", so that adding it to the clock does not overflow.
    return Deadline(std::chrono::steady_clock::now() +
                    absl::ToChronoNanoseconds(std::min(time, absl::Hours(24))));
  }
  // Not negative.
  absl::Duration left() const {
    const auto left = at_ - std::chrono::steady_clock::now();
    return std::max(absl::FromChrono(left), absl::ZeroDuration());
  }
  bool is_over() const { return left() == absl::ZeroDuration(); }
  Deadline SoonerOf(absl::Duration time) const { return Deadline(std::min(at_, After(time).at_)); }

 private:
  explicit Deadline(std::chrono::steady_clock::time_point at) : at_(at) {}
  std::chrono::steady_clock::time_point at_;
};

// Ends every wait on it, now and later. Thread-safe.
class StopEvent {
 public:
  StopEvent() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void Set() {
    stopped_ = true;
    eventfd_write(descriptor_.get(), 1);
  }
  bool is_set() const { return stopped_; }

  // Waits until `socket` has one of `events`; a negative one never has. Returns what it has; 0 when the time
  // is over, when this was set, or after a signal.
  int Wait(int socket, int events, absl::Duration time) const {
    pollfd watched[] = {{.fd = socket, .events = static_cast<short>(events), .revents = 0},
                        {.fd = descriptor_.get(), .events = POLLIN, .revents = 0}};
    // Rounded up: a wait of less than a millisecond must not become a busy loop.
    const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(time, absl::Milliseconds(1)));
    poll(watched, 2, static_cast<int>(std::min<int64_t>(milliseconds, 3'600'000)));
    return is_set() ? 0 : watched[0].revents;
  }

 private:
  const FileDescriptor descriptor_;
  std::atomic<bool> stopped_{false};
};

}  // namespace penstock
