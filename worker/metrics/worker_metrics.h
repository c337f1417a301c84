// What a worker's metrics say: where the time of its rank goes, what was planned for it, memory, checkpoints,
// epochs.
//
// The planner knows all ranks, but only what a report sums up; these say what a rank waits for. Labels are
// `training_job` and `rank`, as in the planner's metrics.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "common/sync/sync.h"
#include "worker/program/program.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

// Thread-safe. Says nothing before the first epoch: rank and job are not known.
class WorkerMetrics {
 public:
  // `registry` must outlive it.
  explicit WorkerMetrics(MetricsRegistry& registry);

  // Registered for a rank of the job in this epoch.
  void OnEpochJoined(absl::string_view job_id, const Registration& registration);
  void OnEpochFailed(const absl::Status& why);
  // `waited`: for the program, before the iteration.
  void OnIteration(const Program& program, const IterationResult& result, absl::Duration waited);
  // This rank's part of a checkpoint is on the disk.
  void OnCheckpointPart(size_t bytes, absl::Duration took);
  // This rank has given up a checkpoint, and goes on.
  void OnCheckpointFailed(const absl::Status& why);
  // A rescue has ended like this ("complete"; worker/runtime/rescue.h) on this rank, which others were lost
  // to.
  void OnRescue(absl::string_view end, absl::Duration took);

 private:
  // With more than these: those of the rank. Empty before the first epoch.
  MetricLabels Labels(MetricLabels more = {}) const;
  void AddActivities(const Program& program, const IterationResult& result);

  const GaugeFamily epoch_;
  const CounterFamily epoch_failures_;
  const CounterFamily iterations_;
  const CounterFamily activity_seconds_;
  const CounterFamily planned_seconds_;
  const GaugeFamily peak_memory_bytes_;
  const GaugeFamily expert_load_;
  const HistogramFamily checkpoint_seconds_;
  const GaugeFamily checkpoint_bytes_;
  const GaugeFamily checkpoint_timestamp_;
  const CounterFamily checkpoint_failures_;
  const CounterFamily rescues_;
  const HistogramFamily rescue_seconds_;
  mutable Mutex mutex_;
  MetricLabels rank_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::worker
