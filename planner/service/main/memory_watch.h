// Looks at the memory of the process while something is planned, and sleeps while nothing is.
//
//   watch.Start([] { ...; return plans; });
//   watch.Wake();                            // something begins to be planned
//   watch.Stop();
//
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "common/sync/sync.h"
#include "common/sync/ticker.h"

namespace penstock {

class MemoryWatch {
 public:
  // `look` is called at once, every 20 ms as long as it returns true, and after each Wake.
  void Start(std::function<bool()> look);
  // Nothing before Start and after Stop, and nothing more while it looks every 20 ms.
  void Wake();
  // Waits for a look that runs; none comes behind it.
  void Stop();

 private:
  Mutex mutex_;
  std::unique_ptr<Ticker> ticker_ ABSL_GUARDED_BY(mutex_);
  // Until something begins.
  std::atomic<bool> sleeps_ = false;
};

}  // namespace penstock
