// Puts together what a store reads of its jobs, and finds out when something is missing or damaged.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/service/store/event_store.h"

namespace penstock {

// First all jobs, then all snapshots, then all events by job and sequence. Every error is DATA_LOSS and names
// the job.
class LoadedJobs {
 public:
  void AddJob(uint64_t job, std::string job_id, uint64_t last_sequence);
  absl::Status AddSnapshot(uint64_t job, uint64_t sequence, uint64_t checksum, std::string bytes);
  absl::Status AddEvent(uint64_t job, uint64_t sequence, uint64_t checksum, std::string bytes);

  // All jobs, by key, when none lacks an event.
  absl::StatusOr<std::vector<StoredJob>> Finish() &&;

 private:
  struct Entry {
    StoredJob job;
    uint64_t last_sequence = 0;
  };
  std::map<uint64_t, Entry> jobs_;
};

}  // namespace penstock
