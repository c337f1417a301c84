// Who reads the programs of a job, and which of them it may be given or was given. Not part of the job's
// events. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "planner/service/engine/job_record.h"
#include "planner/service/engine/stream_readers.h"
#include "planner/service/engine/wake_list.h"

namespace penstock {

class JobReaders {
 public:
  // `record` must outlive it. Whatever is planned may have been sent before the planner started.
  explicit JobReaders(const JobRecord& record) : sent_(record.state().ranks(), record.state().planned()) {}

  // What is called when there may be more to read, or nothing any more.
  WakeList& wakes() { return wakes_; }
  // Without the lock.
  void WakeAll() { wakes_.WakeAll(); }
  bool empty() const { return wakes_.empty(); }
  // What those ask for that have a stream.
  StreamReaders& streams() { return streams_; }
  const StreamReaders& streams() const { return streams_; }

  // The plan is not durable: its programs are given to nobody, until Release.
  void HoldBackLocked(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    held_back_.insert(iteration);
  }
  void ReleaseLocked(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    held_back_.erase(iteration);
  }
  bool IsHeldBackLocked(uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return held_back_.contains(iteration);
  }

  // The worker of the rank was given the program of the iteration.
  void NoteSentLocked(uint32_t rank, uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    sent_[rank] = std::max(sent_[rank], iteration + 1);
  }
  bool WasSentLocked(uint32_t rank, uint64_t iteration) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    return iteration < sent_[rank];
  }
  // An epoch begins with this iteration: none from it on was sent.
  void BeginEpochLocked(uint64_t first_iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    sent_.assign(sent_.size(), first_iteration);
  }

 private:
  WakeList wakes_;
  StreamReaders streams_;
  std::set<uint64_t> held_back_ ABSL_GUARDED_BY(job_lock);
  // By rank: one more than the last iteration that its stream was given in this epoch.
  std::vector<uint64_t> sent_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
