#include "planner/cli/up/stop_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

namespace penstock::cli {
namespace {

int OpenSignalDescriptor() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

StopSignal::StopSignal() : descriptor_(OpenSignalDescriptor()) {}

bool StopSignal::WaitFor(absl::Duration timeout) {
  if (received_) return true;
  pollfd waited{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
  received_ = poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
  return received_;
}

}  // namespace penstock::cli
