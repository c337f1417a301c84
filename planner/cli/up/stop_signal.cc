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

bool StopSignal::Take(absl::Duration timeout, const std::vector<int>& others) {
  std::vector<pollfd> waited = {{.fd = descriptor_.get(), .events = POLLIN, .revents = 0}};
  for (const int other : others) waited.push_back({.fd = other, .events = POLLIN, .revents = 0});
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (poll(waited.data(), waited.size(), milliseconds) <= 0 || waited.front().revents == 0) return false;
  signalfd_siginfo taken;
  return read(descriptor_.get(), &taken, sizeof(taken)) == sizeof(taken);
}

bool StopSignal::WaitFor(absl::Duration timeout, const std::vector<int>& others) {
  if (!received_) received_ = Take(timeout, others);
  return received_;
}

bool StopSignal::WaitForAnother(absl::Duration timeout) {
  if (!received_another_) received_another_ = Take(timeout, {});
  return received_another_;
}

}  // namespace penstock::cli
