// Sends iteration reports in order, in the background.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "common/sync/sync.h"
#include "worker/agent/closable_queue.h"
#include "worker/agent/planner_link.h"

namespace penstock::worker {

class ReportSender {
 public:
  using FailureHandler = std::function<void(const absl::Status&)>;

  // A planner that does not answer is tried again until Stop; any other error goes to `on_failure`, once.
  // `link` must outlive this object.
  ReportSender(PlannerLink& link, WorkerIdentity self, FailureHandler on_failure);
  ~ReportSender();
  ReportSender(const ReportSender&) = delete;
  ReportSender& operator=(const ReportSender&) = delete;

  // Both as in ControlPlane. Possible errors: the reason given to Stop.
  absl::Status Send(IterationReport report);
  absl::Status Flush(absl::Duration timeout);
  // As ControlPlane::Reported.
  uint64_t delivered() const;

  // `reason` is an error. Any thread.
  void Stop(const absl::Status& reason);

  // Waits for the thread to end, which it does after Stop.
  void Join();

  // After Stop: sends what was held up by it, in order, for as long as `timeout`. The planner takes reports
  // of an epoch that has failed until another one begins. Possible errors: those of the call;
  // DEADLINE_EXCEEDED.
  absl::Status SendLeft(absl::Duration timeout);

 private:
  void Run();
  // Tries until the planner has the report, an error is final, or Stop.
  absl::Status Deliver(const IterationReport& report);

  PlannerLink& link_;
  const WorkerIdentity self_;
  const FailureHandler on_failure_;
  ClosableQueue<IterationReport> queue_;

  mutable Mutex mutex_;
  CondVar changed_;
  // Handed over and not yet taken by the planner.
  int unsent_ ABSL_GUARDED_BY(mutex_) = 0;
  // The report that the thread had when it was stopped.
  std::optional<IterationReport> interrupted_ ABSL_GUARDED_BY(mutex_);
  uint64_t delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace penstock::worker
