// Keeps a server from running out of file descriptors.
//
// gRPC takes whoever connects, and stops to listen for good at the first connection that it cannot accept: a
// stranger who opens enough of them would make the server deaf until it is restarted. So when few descriptors
// are left its port drops who comes new, and hears again when there are more; calls that are there go on, and
// files can be opened. It counts them as often as they could have become few: of a million every 200 ms.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/time/time.h"
#include "common/process/listeners.h"
#include "common/sync/ticker.h"

namespace penstock {

class SpareDescriptors {
 public:
  // Of a server that listens on these. Watches until it is destroyed, which must be before the server is shut
  // down: the port stays taken until then.
  explicit SpareDescriptors(Listeners listeners);

 private:
  // Returns after how long to look again.
  absl::Duration Look();
  // Makes the port deaf, or has it hear again.
  void Refuse(bool refuse, size_t taken);

  const Listeners listeners_;
  // Descriptors that the process may have; 0: not known.
  const size_t limit_;
  // The ticker's alone.
  bool refuses_ = false;
  // Last, so that it ends first. Null: nothing is watched.
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace penstock
