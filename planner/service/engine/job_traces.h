// What the observer of a job is told of each batch on its way, for traces. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobTraces {
 public:
  // Of one try to plan a batch.
  struct PlanningTimes {
    absl::Time queued;
    absl::Time began;
    absl::Time made = absl::InfiniteFuture();
  };
  // Iterations, and when their batches were accepted.
  using EndedBatches = std::vector<std::pair<uint64_t, absl::Time>>;

  // `record` must outlive it.
  explicit JobTraces(const JobRecord& record) : record_(record) {}

  // After a restart of the planner: as if batches were accepted now.
  void TakeUpBatchesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  void NoteAcceptedLocked(uint64_t iteration, absl::Time asked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock) {
    accepted_[iteration] = asked;
  }
  // Adds the batch to `ended` where that was not told before.
  void NoteEndLocked(uint64_t iteration, EndedBatches& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  // These call the observer: without the lock. `plan`: null where there is none.
  void TellOfTry(uint64_t iteration, const PlanningTimes& times, const absl::Status& status,
                 const v1::Plan* plan) const;
  void TellOfFailures(const EndedBatches& batches, const absl::Status& why) const;
  void TellOfEnds(const EndedBatches& batches, const std::vector<v1::IterationSummary>& summaries) const;

 private:
  const JobRecord& record_;
  // When the batches were accepted whose end was not told yet.
  std::map<uint64_t, absl::Time> accepted_ ABSL_GUARDED_BY(job_lock);
};

}  // namespace penstock
