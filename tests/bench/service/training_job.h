// A job that trains as far as the planner can tell: it is registered, its batches are submitted as the window
// opens, and each of its ranks registers, sends heartbeats, reads its programs and reports what it measured.
// An iteration takes a fixed time; nothing is computed.
//
//   TrainingJob job(address, {.spec = BenchJob(8, 8, v1::POLICY_DYNAMIC), .batch = BenchLengths(1024)});
//   PENSTOCK_RETURN_IF_ERROR(job.Start());
//   ... job.iterations(), job.waits() ...
//   absl::Status first_error = job.Stop();
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "penstock/client/planner_client.h"
#include "tests/bench/latencies.h"

namespace penstock::bench {

struct TrainingJobOptions {
  v1::JobSpec spec;
  // Of every iteration; sample ids and the iteration are set.
  v1::Batch batch;
  absl::Duration iteration = absl::Seconds(1);
  absl::Duration heartbeat_interval = absl::Seconds(1);
};

class TrainingJob {
 public:
  TrainingJob(const std::string& address, TrainingJobOptions options);
  // Stops.
  ~TrainingJob();
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  // Returns when all ranks are registered and work. Possible errors: those of the calls.
  absl::Status Start();
  // Ends all threads. The first error that any of them met.
  absl::Status Stop();

  const std::string& job_id() const { return options_.spec.job_id(); }
  // The reports of rank 0.
  uint64_t iterations() const { return iterations_.load(); }
  // From asking for the next program to having it, of all ranks.
  const Latencies& waits() const { return waits_; }
  const Latencies& submissions() const { return submissions_; }
  const Latencies& heartbeats() const { return heartbeats_; }
  const Latencies& reports() const { return reports_; }
  PlannerClient& client() { return client_; }

 private:
  struct Rank {
    uint64_t incarnation = 0;
    uint64_t epoch = 0;
  };

  void Feed();
  void Beat();
  void Work(uint32_t rank);
  absl::Status WorkUntilStopped(uint32_t rank, ProgramStream& stream);
  absl::Status Report(uint32_t rank, const v1::StreamProgramsResponse& program);
  absl::Status SubmitWhatFits(uint64_t* next);
  // Errors of what was stopped do not count.
  void Note(const absl::Status& status);
  // False when it was stopped meanwhile.
  bool Sleep(absl::Duration time) { return !stopped_.WaitForNotificationWithTimeout(time); }

  const TrainingJobOptions options_;
  PlannerClient client_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<ProgramStream>> streams_;
  absl::Notification stopped_;
  std::atomic<uint64_t> iterations_ = 0;
  Latencies waits_;
  Latencies submissions_;
  Latencies heartbeats_;
  Latencies reports_;
  Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace penstock::bench
