// When each worker of a job was last heard of. Not part of the job's events: after a restart of the planner
// every worker has as long as ever to be heard of again. Not thread-safe; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace penstock {

class Heartbeats {
 public:
  // A worker that is silent for longer than `timeout` is lost.
  Heartbeats(uint32_t ranks, absl::Duration timeout, absl::Time now)
      : timeout_(timeout), workers_(ranks, Worker{now}) {}

  // The rank has a new worker.
  void Join(uint32_t rank, absl::Time now) { workers_[rank] = Worker{now}; }
  void Hear(uint32_t rank, absl::Time now) { workers_[rank].last = now; }
  // The planner itself stood still for so long and heard nobody: nobody's silence.
  void Excuse(absl::Duration gap, absl::Time now) {
    for (Worker& worker : workers_) worker.last = std::min(worker.last + gap, now);
  }
  // The worker knows that its epoch failed, so its silence, or that it leaves, explains nothing.
  void TellFailure(uint32_t rank) { workers_[rank].knows_failure = true; }

  bool KnowsFailure(uint32_t rank) const { return workers_[rank].knows_failure; }
  absl::Duration Silence(uint32_t rank, absl::Time now) const { return now - workers_[rank].last; }
  bool IsLost(uint32_t rank, absl::Time now) const {
    return !KnowsFailure(rank) && Silence(rank, now) > timeout_;
  }

  // How often workers are to send one.
  absl::Duration interval() const { return std::min(timeout_ / 5, absl::Seconds(1)); }

 private:
  struct Worker {
    absl::Time last;
    bool knows_failure = false;
  };

  const absl::Duration timeout_;
  std::vector<Worker> workers_;
};

}  // namespace penstock
