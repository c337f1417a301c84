// Runs tasks that write to a disk on a thread of its own, one after the other, so that training does not wait
// for the disk.
//
//   BackgroundWriter writer;
//   writer.Add([=] { return WritePart(...); });
//   ...
//   PENSTOCK_RETURN_IF_ERROR(writer.status());              // of what has been written so far
//   PENSTOCK_RETURN_IF_ERROR(writer.Wait(absl::Minutes(10)));
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"

namespace penstock::worker {

// Thread-safe.
class BackgroundWriter {
 public:
  using Task = std::function<absl::Status()>;

  BackgroundWriter();
  // Waits for the task that runs; those behind it are dropped.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // After an error no further task is run.
  void Add(Task task);
  // Whether a task runs or waits.
  bool busy() const;
  // The first error of any task. Does not block.
  absl::Status status() const;
  // Blocks until all tasks have ended.
  // Possible errors: that of a task; DEADLINE_EXCEEDED (they have not within `timeout`).
  absl::Status Wait(absl::Duration timeout);

 private:
  void Run();

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace penstock::worker
