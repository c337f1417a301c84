#include "planner/cli/up/stop_signal.h"

#include <poll.h>

#include "common/process/stop_signals.h"

namespace penstock::cli {

StopSignal::StopSignal() {
  BlockStopSignals();
  descriptor_ = OpenStopSignals();
}

bool StopSignal::WaitFor(absl::Duration timeout) {
  if (received_) return true;
  pollfd waited{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
  received_ = poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
  return received_;
}

}  // namespace penstock::cli
