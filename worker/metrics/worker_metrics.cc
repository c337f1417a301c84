#include "worker/metrics/worker_metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace penstock::worker {
namespace {

// What a rank does with its time, in the words of the label `activity`.
enum class Activity : uint8_t { kForward, kBackward, kStep, kReduce, kTransferWait, kProgramWait, kOther };
constexpr std::array kNames = {"forward",       "backward",     "optimizer_step", "reduce_gradients",
                               "transfer_wait", "program_wait", "other"};
using Seconds = std::array<double, kNames.size()>;

Activity ActivityOf(Op op) {
  switch (op) {
    case Op::kForward:
      return Activity::kForward;
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return Activity::kBackward;
    case Op::kReduceGradients:
      return Activity::kReduce;
    case Op::kOptimizerStep:
      return Activity::kStep;
    case Op::kWait:
      return Activity::kTransferWait;
    case Op::kLoad:
    case Op::kSend:
    case Op::kRecv:
    case Op::kFree:
      return Activity::kOther;
  }
  return Activity::kOther;
}

// Whether the plan says how long it takes. Of a transfer and of a reduction it says so too, but what a rank
// sees of them is how long it waits.
bool IsPlanned(Activity activity) { return activity <= Activity::kStep; }

double& Of(Seconds& seconds, Activity activity) { return seconds[static_cast<size_t>(activity)]; }

// Of a reduction: how long no pass of the rank ran beside it.
int64_t ExposedNs(const MeasuredInstruction& reduction, const Program& program,
                  const std::vector<MeasuredInstruction>& all) {
  const int64_t end_ns = reduction.start_ns + reduction.duration_ns;
  int64_t exposed_ns = reduction.duration_ns;
  for (const MeasuredInstruction& other : all) {
    if (!IsPlanned(ActivityOf(program.instructions.at(other.id).op))) continue;
    const int64_t first_ns = std::max(reduction.start_ns, other.start_ns);
    const int64_t last_ns = std::min(end_ns, other.start_ns + other.duration_ns);
    exposed_ns -= std::max<int64_t>(0, last_ns - first_ns);
  }
  return std::max<int64_t>(0, exposed_ns);
}

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
          "Checkpoints that this rank could not write or complete, and went on without, by the code.")) {}

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
  activity_seconds_.Increment(Labels({{"activity", kNames[static_cast<size_t>(Activity::kProgramWait)]}}),
                              absl::ToDoubleSeconds(waited));
  AddActivities(program, result);
  // Not counted on every device.
  if (result.peak_memory_bytes > 0)
    peak_memory_bytes_.Set(Labels(), static_cast<double>(result.peak_memory_bytes));
  // Models without experts have none.
  if (result.expert_load > 0) expert_load_.Set(Labels(), result.expert_load);
}

void WorkerMetrics::AddActivities(const Program& program, const IterationResult& result) {
  Seconds measured = {};
  Seconds planned = {};
  int64_t known_ns = 0;
  for (const MeasuredInstruction& instruction : result.instructions) {
    const Activity activity = ActivityOf(program.instructions.at(instruction.id).op);
    const int64_t own_ns = activity == Activity::kReduce
                               ? ExposedNs(instruction, program, result.instructions)
                               : instruction.duration_ns;
    Of(measured, activity) += ToSeconds(own_ns);
    known_ns += own_ns;
  }
  for (const Instruction& instruction : program.instructions)
    Of(planned, ActivityOf(instruction.op)) += ToSeconds(instruction.expected_duration_ns);
  // Streams run side by side on a GPU, so that the sum may be longer than the iteration.
  Of(measured, Activity::kOther) += ToSeconds(std::max<int64_t>(0, result.duration_ns - known_ns));
  for (size_t i = 0; i < kNames.size(); ++i) {
    const auto activity = static_cast<Activity>(i);
    if (activity == Activity::kProgramWait) continue;
    const MetricLabels labels = Labels({{"activity", kNames[i]}});
    activity_seconds_.Increment(labels, measured[i]);
    if (IsPlanned(activity)) planned_seconds_.Increment(labels, planned[i]);
  }
}

void WorkerMetrics::OnCheckpointPart(size_t bytes, absl::Duration took) {
  checkpoint_seconds_.Observe(Labels(), absl::ToDoubleSeconds(took));
  checkpoint_bytes_.Set(Labels(), static_cast<double>(bytes));
  checkpoint_timestamp_.Set(Labels(), absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
}

void WorkerMetrics::OnCheckpointFailed(const absl::Status& why) {
  checkpoint_failures_.Increment(Labels({{"code", absl::StatusCodeToString(why.code())}}));
}

}  // namespace penstock::worker
