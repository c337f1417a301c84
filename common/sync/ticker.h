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
  // The first call comes at once, and each says after how long the next one does.
  Ticker(ThreadName name, std::function<absl::Duration()> tick);
  // Waits for a call that runs.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // The next call comes at once. Any thread.
  void Wake();

 private:
  Ticker(ThreadName name, std::function<absl::Duration()> tick, absl::Duration first);
  // False when it is time to end.
  bool WaitFor(absl::Duration pause);

  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
