// Ends the worker in time, whatever asks for it: SIGTERM, SIGINT, or a failure that another thread learnt of.
//
// The thread that trains may be blocked in a transfer or deep in a computation. A request runs the handlers
// (which abort the transfers) on a thread of its own; when the worker has still not ended after the grace
// time, the process exits at once.
//
//   BlockStopSignals();                        // first thing in main, before any thread
//   Shutdown shutdown(absl::Seconds(8));
//   shutdown.AddHandler([&](const absl::Status& why) { communicator->Abort(why.ToString()); });
//   ... train ...
//   shutdown.Disarm();                         // before what the handlers use goes away
#pragma once

#include <functional>
#include <thread>
#include <vector>

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

  // A handler added after the request is called soon, too.
  void AddHandler(Handler handler);
  // `why` is an error; the first one counts. Does not block. Any thread.
  void Request(const absl::Status& why);
  // OK while nobody asked. Any thread.
  absl::Status reason() const;
  // The request came as a signal.
  bool signalled() const;

  // No handler runs after this. Idempotent.
  void Disarm();

 private:
  void Run();
  void HandleSignal();
  // Calls the handlers that have not been called.
  void CallHandlers(const absl::Status& why);
  // Blocks until a request, a new handler, a signal or Disarm; at most until the deadline.
  void WaitForEvent(absl::Time deadline);
  void Wake();

  const absl::Duration grace_;
  const FileDescriptor signals_;
  const FileDescriptor event_;

  mutable Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool disarmed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Handler> handlers_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace penstock::worker
