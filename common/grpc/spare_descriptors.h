// Keeps a server from running out of file descriptors.
//
// gRPC takes whoever connects, and stops to listen for good at the first connection that it cannot accept: a
// stranger who opens enough of them would make the server deaf until it is restarted. So when few descriptors
// are left its port drops who comes new, and hears again when there are more; calls that are there go on, and
// files can be opened.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>

#include "common/process/listeners.h"
#include "common/sync/sync.h"

namespace penstock {

class SpareDescriptors {
 public:
  // Of a server that listens on these. Watches until it is destroyed, which must be before the server is shut
  // down: the port stays taken until then.
  explicit SpareDescriptors(Listeners listeners);
  ~SpareDescriptors();
  SpareDescriptors(const SpareDescriptors&) = delete;
  SpareDescriptors& operator=(const SpareDescriptors&) = delete;

 private:
  void Watch();
  // `limit`: descriptors that the process may have.
  void Look(size_t limit);
  bool WaitForNext();

  const Listeners listeners_;
  // The watching thread's.
  bool refuses_ = false;
  Mutex mutex_;
  CondVar stop_changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
