#include "planner/cli/up/stop_signal.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/process/stop_signals.h"

namespace penstock::cli {

StopSignal::StopSignal() {
  BlockStopSignals();
  descriptor_ = OpenStopSignals();
}

bool StopSignal::Take(absl::Duration timeout) {
  pollfd waited{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
  if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) return false;
  signalfd_siginfo taken;
  return read(descriptor_.get(), &taken, sizeof(taken)) == sizeof(taken);
}

bool StopSignal::WaitFor(absl::Duration timeout) {
  if (!received_) received_ = Take(timeout);
  return received_;
}

bool StopSignal::WaitForAnother(absl::Duration timeout) {
  if (!received_another_) received_another_ = Take(timeout);
  return received_another_;
}

}  // namespace penstock::cli
