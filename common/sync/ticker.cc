#include "common/sync/ticker.h"

#include <utility>

namespace penstock {

Ticker::Ticker(ThreadName name, absl::Duration period, std::function<void()> tick)
    : period_(period), tick_(std::move(tick)) {
  thread_ = std::thread([this, name] {
    NameThisThread(name);
    while (WaitForNext()) tick_();
  });
}

Ticker::~Ticker() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  stop_changed_.SignalAll();
  thread_.join();
}

bool Ticker::WaitForNext() {
  MutexLock lock(&mutex_);
  if (!stop_) stop_changed_.WaitWithTimeout(&mutex_, period_);
  return !stop_;
}

}  // namespace penstock
