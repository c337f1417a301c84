#include "common/sync/ticker.h"

#include <utility>

namespace penstock {

Ticker::Ticker(ThreadName name, absl::Duration period, std::function<void()> tick)
    : Ticker(
          name,
          [period, tick = std::move(tick)] {
            tick();
            return period;
          },
          period) {}

Ticker::Ticker(ThreadName name, std::function<absl::Duration()> tick)
    : Ticker(name, std::move(tick), absl::ZeroDuration()) {}

Ticker::Ticker(ThreadName name, std::function<absl::Duration()> tick, absl::Duration first) {
  thread_ = std::thread([this, name, first, tick = std::move(tick)] {
    NameThisThread(name);
    for (absl::Duration pause = first; WaitFor(pause);) pause = tick();
  });
}

Ticker::~Ticker() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void Ticker::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.SignalAll();
}

bool Ticker::WaitFor(absl::Duration pause) {
  MutexLock lock(&mutex_);
  if (!stop_ && !woken_) changed_.WaitWithTimeout(&mutex_, pause);
  woken_ = false;
  return !stop_;
}

}  // namespace penstock
