// Calls a function again and again, on a thread of its own.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "common/sync/thread_name.h"

namespace penstock {

class Ticker {
 public:
  // `tick` is called every `period` until the ticker is destroyed, by a thread of that name.
  Ticker(ThreadName name, absl::Duration period, std::function<void()> tick);
  // Waits for a call that runs.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  // False when it is time to end.
  bool WaitForNext();

  const absl::Duration period_;
  const std::function<void()> tick_;
  Mutex mutex_;
  CondVar stop_changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
