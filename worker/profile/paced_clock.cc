#include "worker/profile/paced_clock.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <utility>

namespace penstock::worker {
namespace {

// Between two pulses; a pulse takes about a tenth of it.
constexpr double kPeriodNs = 2e7;
// Of a pulse, the middle one of which counts: one alone may have been interrupted.
constexpr size_t kRepeats = 3;
constexpr int64_t kRows = 128;
constexpr int64_t kWidth = 512;

}  // namespace

PacedClock::PacedClock(NanosecondClock clock, std::function<void()> work, double first_pulse)
    : clock_(std::move(clock)), work_(std::move(work)) {
  if (!work_) return;
  work_();
  last_pulse_ = Pulse();
  first_pulse_ = first_pulse > 0 ? first_pulse : last_pulse_;
  pulsed_at_ = read_at_ = clock_();
}

double PacedClock::Level() const {
  return work_ ? pulse_sum_ / static_cast<double>(pulses_) / first_pulse_ : 1;
}

double PacedClock::Now() {
  if (!work_) return clock_();
  const double now = clock_();
  const double elapsed = now - read_at_;
  const double before = last_pulse_;
  read_at_ = now;
  if (now - pulsed_at_ > kPeriodNs) {
    last_pulse_ = Pulse();
    pulsed_at_ = read_at_ = clock_();
  }
  paced_ns_ += elapsed * first_pulse_ / ((before + last_pulse_) / 2);
  return paced_ns_;
}

double PacedClock::Pulse() {
  std::array<double, kRepeats> times = {};
  for (double& time : times) {
    const double start = clock_();
    work_();
    time = clock_() - start;
  }
  std::sort(times.begin(), times.end());
  const double pulse = std::max(times[kRepeats / 2], 1.0);
  pulse_sum_ += pulse;
  ++pulses_;
  return pulse;
}

std::function<void()> SmallProduct() {
  const at::Tensor rows = at::ones({kRows, kWidth});
  const at::Tensor weight = at::ones({kWidth, kWidth});
  return [rows, weight] { at::mm(rows, weight); };
}

}  // namespace penstock::worker
