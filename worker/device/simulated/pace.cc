#include "worker/device/simulated/pace.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"

namespace penstock::worker {
namespace {

class SteadyClock : public WallClock {
 public:
  int64_t NowNs() const override {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  absl::Status WaitUntil(int64_t deadline_ns) override {
    MutexLock lock(&mutex_);
    for (;;) {
      PENSTOCK_RETURN_IF_ERROR(cancelled_);
      const int64_t left_ns = deadline_ns - NowNs();
      if (left_ns <= 0) return absl::OkStatus();
      changed_.WaitWithTimeout(&mutex_, absl::Nanoseconds(left_ns));
    }
  }

  void Cancel(const absl::Status& why) override {
    MutexLock lock(&mutex_);
    if (cancelled_.ok()) cancelled_ = why;
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<WallClock> MakeWallClock() { return std::make_unique<SteadyClock>(); }

int64_t Pace::DeadlineNs(int64_t simulated_ns) const {
  return origin_ns_ + std::llround(static_cast<double>(simulated_ns) * time_scale_);
}

void Pace::Begin(int64_t simulated_ns) {
  origin_ns_ += std::max<int64_t>(0, clock_.NowNs() - DeadlineNs(simulated_ns));
}

absl::Status Pace::WaitUntil(int64_t simulated_ns) { return clock_.WaitUntil(DeadlineNs(simulated_ns)); }

}  // namespace penstock::worker
