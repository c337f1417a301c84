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
#include "common/sync/thread_name.h"

namespace penstock::worker {
Shutdown::Shutdown(absl::Duration grace)
    : grace_(grace),
      signals_(OpenStopSignals()),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

uint64_t Shutdown::AddHandler(Handler handler) {
  uint64_t name = 0;
  {
    MutexLock lock(&mutex_);
    name = next_handler_++;
    handlers_[name] = std::move(handler);
  }
  Wake();
  return name;
}

void Shutdown::RemoveHandler(uint64_t handler) {
  MutexLock lock(&mutex_);
  handlers_.erase(handler);
  while (running_ == handler) changed_.Wait(&mutex_);
}

void Shutdown::Request(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (reason_.ok()) reason_ = why;
    changed_.SignalAll();
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

void Shutdown::BeginSoftStop(absl::Duration time) {
  MutexLock lock(&mutex_);
  soft_time_ = time;
}

void Shutdown::EndSoftStop() {
  {
    MutexLock lock(&mutex_);
    soft_time_ = absl::ZeroDuration();
    RequestWantedLocked();
  }
  Wake();
}

absl::Status Shutdown::wanted() const {
  MutexLock lock(&mutex_);
  return reason_.ok() ? wanted_ : reason_;
}

void Shutdown::RequestWantedLocked() {
  wanted_until_ = absl::InfiniteFuture();
  if (wanted_.ok() || !reason_.ok()) return;
  signalled_ = true;
  reason_ = wanted_;
  changed_.SignalAll();
}

absl::Status Shutdown::WaitFor(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  MutexLock lock(&mutex_);
  while (reason_.ok() && absl::Now() < end) changed_.WaitWithTimeout(&mutex_, end - absl::Now());
  return reason_;
}

void Shutdown::SetLimit(absl::Duration time, const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    limit_ = absl::Now() + time;
    limit_reason_ = why;
  }
  Wake();
}

void Shutdown::ClearLimit() {
  MutexLock lock(&mutex_);
  limit_ = absl::InfiniteFuture();
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
  const absl::Status why =
      absl::CancelledError(absl::StrCat("stopped by ", info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT"));
  {
    MutexLock lock(&mutex_);
    if (soft_time_ > absl::ZeroDuration() && wanted_.ok() && reason_.ok()) {
      wanted_ = why;
      wanted_until_ = absl::Now() + soft_time_;
      LogInfo("ending after this iteration, with a checkpoint; a second signal ends at once",
              {{"reason", std::string(why.message())}});
      return;
    }
    signalled_ = signalled_ || reason_.ok();
  }
  Request(why);
}

void Shutdown::CallHandlers(const absl::Status& why) {
  for (;;) {
    Handler handler;
    {
      MutexLock lock(&mutex_);
      running_ = 0;
      changed_.SignalAll();
      if (handlers_.empty()) return;
      const auto first = handlers_.begin();
      running_ = first->first;
      handler = std::move(first->second);
      handlers_.erase(first);
    }
    handler(why);
  }
}

void Shutdown::ExitWhenOver(absl::Time deadline, const absl::Status& why) {
  if (absl::Now() < deadline) return;
  LogError("the worker did not end in time and is stopped", {{"reason", std::string(why.message())}});
  _exit(1);
}

void Shutdown::Run() {
  NameThisThread("shutdown");
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time limit = absl::InfiniteFuture();
  absl::Time noted = absl::InfiniteFuture();
  for (;;) {
    WaitForEvent(std::min({deadline, limit, noted}));
    HandleSignal();
    absl::Status why;
    absl::Status limit_reason;
    {
      MutexLock lock(&mutex_);
      if (disarmed_) return;
      if (absl::Now() >= wanted_until_) RequestWantedLocked();
      noted = wanted_until_;
      why = reason_;
      limit = limit_;
      limit_reason = limit_reason_;
    }
    ExitWhenOver(limit, limit_reason);
    if (why.ok()) continue;
    if (deadline == absl::InfiniteFuture()) deadline = absl::Now() + grace_;
    CallHandlers(why);
    ExitWhenOver(deadline, why);
  }
}

}  // namespace penstock::worker
