// Keeps a worker alive at the planner and learns the state of its epoch, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/backoff/backoff.h"
#include "common/sync/sync.h"
#include "worker/agent/planner_link.h"

namespace penstock::worker {

struct HeartbeatOptions {
  absl::Duration interval = absl::Seconds(1);
  // How long the planner may be silent before it counts as gone.
  absl::Duration planner_timeout = absl::Seconds(60);
  // For messages: "host:port".
  std::string planner = {};
};

class Heartbeat {
 public:
  // Called at most once, from any thread that learns of the failure; must not call back.
  using FailureHandler = std::function<void(const absl::Status&)>;

  // `link` must outlive this object.
  Heartbeat(PlannerLink& link, WorkerIdentity self, HeartbeatOptions options, FailureHandler on_failure);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void Announce(const std::string& rendezvous_address);
  // As ControlPlane::WaitUntilReady.
  absl::StatusOr<Rendezvous> WaitUntilReady(absl::Duration timeout);

  // One heartbeat at once, on the caller's thread. The state of the epoch becomes that of the answer.
  absl::StatusOr<BeatAnswer> SendNow(Beat beat, absl::Duration timeout);

  // The same, again and again with pauses while the planner does not answer, for as long as `timeout` or
  // until the epoch has failed.
  void SendUntilAnswered(const Beat& beat, absl::Duration timeout);

  // As ControlPlane::ReportFailure.
  absl::Status ReportFailure(const absl::Status& failure, absl::Duration timeout);

  // Ends waiting and heartbeats with `reason`, the first one given; the planner is not told. Any thread.
  void Fail(const absl::Status& reason);
  // OK while there was none.
  absl::Status failure() const;

  // Waits for the thread to end, which it does after Fail.
  void Join();

 private:
  void Run();
  // The time of the next heartbeat; short while ranks are missing, so that training starts at once.
  absl::Duration IntervalLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAnswer(const absl::StatusOr<BeatAnswer>& answer);
  // Returns early when the epoch has failed.
  void Pause(absl::Duration time);

  PlannerLink& link_;
  const WorkerIdentity self_;
  const HeartbeatOptions options_;
  const FailureHandler on_failure_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::string rendezvous_address_ ABSL_GUARDED_BY(mutex_);
  std::optional<Rendezvous> ready_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_answer_ ABSL_GUARDED_BY(mutex_);
  Backoff retry_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  // What the failure of the epoch is to this worker: its own error, once it has reported one.
  absl::StatusCode failed_as_ ABSL_GUARDED_BY(mutex_) = absl::StatusCode::kUnavailable;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace penstock::worker
