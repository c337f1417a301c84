// Reads a rank's programs ahead of their execution, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "common/sync/sync.h"
#include "worker/agent/closable_queue.h"
#include "worker/agent/planner_link.h"

namespace penstock::worker {

class ProgramReader {
 public:
  using FailureHandler = std::function<void(const absl::Status&)>;

  // Starts to read at `first_iteration`. A stream that breaks is opened again where it ended, until Stop; any
  // other error goes to `on_failure`, once. `link` must outlive this object.
  ProgramReader(PlannerLink& link, WorkerIdentity self, JobConfig job, uint64_t first_iteration,
                FailureHandler on_failure);
  ~ProgramReader();
  ProgramReader(const ProgramReader&) = delete;
  ProgramReader& operator=(const ProgramReader&) = delete;

  // As those of ControlPlane. Possible errors: the reason given to Stop.
  absl::StatusOr<NextProgram> Next();
  std::shared_ptr<const Program> Upcoming() const;

  // `reason` is an error. Any thread.
  void Stop(const absl::Status& reason);

  // Waits for the thread to end, which it does after Stop.
  void Join();

 private:
  void Run(uint64_t next_iteration);
  // Reads until the stream ends. Advances `next_iteration` past what was read. OK: the job is finished.
  absl::Status ReadStream(uint64_t& next_iteration);
  absl::Status Take(Program program, uint64_t& next_iteration);
  // False when Stop was called meanwhile.
  bool WaitToRetry(absl::Duration time);

  PlannerLink& link_;
  const WorkerIdentity self_;
  // Of the thread; grows by strategies that the job gets meanwhile.
  JobConfig job_;
  const FailureHandler on_failure_;
  ClosableQueue<NextProgram> queue_;

  Mutex mutex_;
  CondVar changed_;
  // The open stream, for Stop to cancel; owned by the thread.
  ProgramStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace penstock::worker
