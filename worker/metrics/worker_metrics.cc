#include "worker/metrics/worker_metrics.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/metrics/activities.h"

namespace penstock::worker {
namespace {

double ToSeconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry)
    : epoch_(registry.AddGauge("penstock_worker_epoch", "Epoch of the job that this rank has joined.")),
      epoch_failures_(registry.AddCounter(
          "penstock_worker_epoch_failures_total",
          "Epochs that ended before the job did, by the code of the reason (UNAVAILABLE: a rank was lost).")),
      iterations_(registry.AddCounter("penstock_worker_iterations_total",
                                      "Iterations that this rank has run; again, if done again.")),
      activity_seconds_(registry.AddCounter("penstock_worker_activity_seconds_total",
                                            "What this rank has spent its time with, by activity.")),
      planned_seconds_(registry.AddCounter("penstock_worker_planned_activity_seconds_total",
                                           "What the plans of these iterations expected, by activity.")),
      peak_memory_bytes_(registry.AddGauge("penstock_worker_peak_memory_bytes",
                                           "Most bytes of tensors at a time in the last iteration.")),
      expert_load_(registry.AddGauge(
          "penstock_worker_expert_load_ratio",
          "Rows of this rank's fullest expert, of all layers, over an even share, in the last iteration.")),
      checkpoint_seconds_(registry.AddHistogram("penstock_worker_checkpoint_write_seconds",
                                                "Writing this rank's part of a checkpoint, in background.",
                                                {0.1, 0.5, 1, 5, 10, 30, 60, 300, 600})),
      checkpoint_bytes_(registry.AddGauge("penstock_worker_checkpoint_bytes",
                                          "Bytes of this rank's part of the last checkpoint.")),
      checkpoint_timestamp_(
          registry.AddGauge("penstock_worker_checkpoint_written_timestamp_seconds",
                            "Unix time when this rank's part of the last checkpoint was on the disk.")),
      checkpoint_failures_(registry.AddCounter(
          "penstock_worker_checkpoint_failures_total",
          "Checkpoints that this rank could not write or complete, and went on without, by the code.")),
      rescues_(registry.AddCounter(
          "penstock_worker_rescues_total",
          "What came of writing what this rank held when another was lost, by the end (complete: the job "
          "went on from it).")),
      rescue_seconds_(registry.AddHistogram("penstock_worker_rescue_seconds",
                                            "From the failure of an epoch to the end of its rescue.",
                                            {0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60})) {}

MetricLabels WorkerMetrics::Labels(MetricLabels more) const {
  MutexLock lock(&mutex_);
  more.insert(rank_.begin(), rank_.end());
  return more;
}

void WorkerMetrics::OnEpochJoined(absl::string_view job_id, const Registration& registration) {
  {
    MutexLock lock(&mutex_);
    rank_ = {{"training_job", std::string(job_id)}, {"rank", absl::StrCat(registration.rank)}};
  }
  epoch_.Set(Labels(), static_cast<double>(registration.epoch));
}

void WorkerMetrics::OnEpochFailed(const absl::Status& why) {
  epoch_failures_.Increment(Labels({{"code", absl::StatusCodeToString(why.code())}}));
}

void WorkerMetrics::OnIteration(const Program& program, const IterationResult& result,
                                absl::Duration waited) {
  iterations_.Increment(Labels());
  activity_seconds_.Increment(
      Labels({{"activity", kActivityNames[static_cast<size_t>(Activity::kProgramWait)]}}),
      absl::ToDoubleSeconds(waited));
  AddActivities(program, result);
  // Not counted on every device.
  if (result.peak_memory_bytes > 0)
    peak_memory_bytes_.Set(Labels(), static_cast<double>(result.peak_memory_bytes));
  // Models without experts have none.
  if (result.expert_load > 0) expert_load_.Set(Labels(), result.expert_load);
}

void WorkerMetrics::AddActivities(const Program& program, const IterationResult& result) {
  const ActivityTimes measured = MeasuredActivities(program, result);
  const ActivityTimes planned = PlannedActivities(program);
  for (size_t i = 0; i < kActivityNames.size(); ++i) {
    const auto activity = static_cast<Activity>(i);
    if (activity == Activity::kProgramWait) continue;
    const MetricLabels labels = Labels({{"activity", kActivityNames[i]}});
    activity_seconds_.Increment(labels, ToSeconds(measured[i]));
    if (IsPlanned(activity)) planned_seconds_.Increment(labels, ToSeconds(planned[i]));
  }
}

void WorkerMetrics::OnCheckpointPart(size_t bytes, absl::Duration took) {
  checkpoint_seconds_.Observe(Labels(), absl::ToDoubleSeconds(took));
  checkpoint_bytes_.Set(Labels(), static_cast<double>(bytes));
  checkpoint_timestamp_.Set(Labels(), absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
}

void WorkerMetrics::OnRescue(absl::string_view end, absl::Duration took) {
  rescues_.Increment(Labels({{"end", std::string(end)}}));
  rescue_seconds_.Observe(Labels(), absl::ToDoubleSeconds(took));
}

void WorkerMetrics::OnCheckpointFailed(const absl::Status& why) {
  checkpoint_failures_.Increment(Labels({{"code", absl::StatusCodeToString(why.code())}}));
}

}  // namespace penstock::worker
