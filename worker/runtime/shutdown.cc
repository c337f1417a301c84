#include "worker/runtime/shutdown.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/process/stop_signals.h"

namespace penstock::worker {
Shutdown::Shutdown(absl::Duration grace)
    : grace_(grace),
      signals_(OpenStopSignals()),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

void Shutdown::AddHandler(Handler handler) {
  {
    MutexLock lock(&mutex_);
    handlers_.push_back(std::move(handler));
  }
  Wake();
}

void Shutdown::Request(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (reason_.ok()) reason_ = why;
  }
  Wake();
}

absl::Status Shutdown::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

bool Shutdown::signalled() const {
  MutexLock lock(&mutex_);
  return signalled_;
}

void Shutdown::Disarm() {
  {
    MutexLock lock(&mutex_);
    disarmed_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Shutdown::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is at its limit, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

void Shutdown::WaitForEvent(absl::Time deadline) {
  pollfd watched[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                      {.fd = event_.get(), .events = POLLIN, .revents = 0}};
  const absl::Duration remaining = std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
  poll(watched, 2, static_cast<int>(absl::ToInt64Milliseconds(remaining)) + 1);
  uint64_t count;
  [[maybe_unused]] const ssize_t received = read(event_.get(), &count, sizeof(count));
}

void Shutdown::HandleSignal() {
  signalfd_siginfo info;
  if (read(signals_.get(), &info, sizeof(info)) != sizeof(info)) return;
  const char* name = info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";
  {
    MutexLock lock(&mutex_);
    signalled_ = signalled_ || reason_.ok();
  }
  Request(absl::CancelledError(absl::StrCat("stopped by ", name)));
}

void Shutdown::CallHandlers(const absl::Status& why) {
  std::vector<Handler> handlers;
  {
    MutexLock lock(&mutex_);
    handlers = std::exchange(handlers_, {});
  }
  for (const Handler& handler : handlers) handler(why);
}

void Shutdown::Run() {
  absl::Time deadline = absl::InfiniteFuture();
  for (;;) {
    WaitForEvent(deadline);
    HandleSignal();
    absl::Status why;
    {
      MutexLock lock(&mutex_);
      if (disarmed_) return;
      why = reason_;
    }
    if (why.ok()) continue;
    if (deadline == absl::InfiniteFuture()) deadline = absl::Now() + grace_;
    CallHandlers(why);
    if (absl::Now() >= deadline) {
      LogError("the worker did not end in time and is stopped", {{"reason", std::string(why.message())}});
      _exit(1);
    }
  }
}

}  // namespace penstock::worker
