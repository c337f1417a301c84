// Ends the worker in time, whatever asks for it: SIGTERM, SIGINT, or a failure that another thread learnt of.
//
// The thread that trains may be blocked in a transfer or deep in a computation. A request runs the handlers
// (which abort the transfers) on a thread of its own; when the worker has still not ended after the grace
// time, the process exits at once.
//
//   BlockStopSignals();                        // first thing in main, before any thread
//   Shutdown shutdown(absl::Seconds(8));
//   const uint64_t handler = shutdown.AddHandler([&](const absl::Status& why) { agent->Stop(why); });
//   ... train ...
//   shutdown.RemoveHandler(handler);           // before what the handler uses goes away
//   shutdown.Disarm();
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"
#include "common/sync/sync.h"

namespace penstock::worker {

class Shutdown {
 public:
  // Called once, on a thread of this object.
  using Handler = std::function<void(const absl::Status& why)>;

  // After a request the process has `grace` to call Disarm; then it exits with status 1.
  explicit Shutdown(absl::Duration grace);
  ~Shutdown() { Disarm(); }
  Shutdown(const Shutdown&) = delete;
  Shutdown& operator=(const Shutdown&) = delete;

  // A handler added after the request is called soon, too. Returns its name for RemoveHandler.
  uint64_t AddHandler(Handler handler);
  // The handler does not run once this returns; blocks while it does. Not to be called by a handler.
  void RemoveHandler(uint64_t handler);
  // `why` is an error; the first one counts. Does not block. Any thread.
  void Request(const absl::Status& why);
  // OK while nobody asked. Any thread.
  absl::Status reason() const;
  absl::Duration grace() const { return grace_; }
  // The request came as a signal.
  bool signalled() const;

  // From now on the first signal is only noted, for wanted() to tell: who trains finishes the iteration and
  // writes a checkpoint. It is a request after `time`, with a second signal, and with EndSoftStop.
  void BeginSoftStop(absl::Duration time);
  void EndSoftStop();
  // Why somebody wants this process to end, be it a request already or not; OK: nobody does. Any thread.
  absl::Status wanted() const;

  // Blocks for `time`, or until a request: returns its reason.
  absl::Status WaitFor(absl::Duration time);

  // Unless ClearLimit is called within `time`, the process exits with status 1: for work that ends by itself
  // and may be stuck. Any thread.
  void SetLimit(absl::Duration time, const absl::Status& why);
  void ClearLimit();

  // No handler runs after this. Idempotent.
  void Disarm();

 private:
  void Run();
  void HandleSignal();
  // The signal that was only noted becomes a request.
  void RequestWantedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls the handlers that have not been called.
  void CallHandlers(const absl::Status& why);
  // Does not return once the time is over.
  void ExitWhenOver(absl::Time deadline, const absl::Status& why);
  // Blocks until a request, a new handler, a signal or Disarm; at most until the deadline.
  void WaitForEvent(absl::Time deadline);
  void Wake();

  const absl::Duration grace_;
  const FileDescriptor signals_;
  const FileDescriptor event_;

  mutable Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;
  // How long a noted signal may wait; 0: it may not.
  absl::Duration soft_time_ ABSL_GUARDED_BY(mutex_);
  // The signal that was noted, and when it becomes a request.
  absl::Status wanted_ ABSL_GUARDED_BY(mutex_);
  absl::Time wanted_until_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool disarmed_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar changed_;
  std::map<uint64_t, Handler> handlers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_handler_ ABSL_GUARDED_BY(mutex_) = 1;
  // The handler that runs; 0: none.
  uint64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time limit_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Status limit_reason_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

// Signals are noted rather than heeded for as long as it lives. A time of 0 changes nothing.
class SoftStop {
 public:
  SoftStop(Shutdown& shutdown, absl::Duration time) : shutdown_(shutdown) { shutdown_.BeginSoftStop(time); }
  ~SoftStop() { shutdown_.EndSoftStop(); }
  SoftStop(const SoftStop&) = delete;
  SoftStop& operator=(const SoftStop&) = delete;

 private:
  Shutdown& shutdown_;
};

}  // namespace penstock::worker
