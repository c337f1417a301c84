// What the planner's metrics say of each training job.
//
// The label of a job is `training_job`: Prometheus gives every target a label `job` of its own and would
// rename ours. A job that the planner has forgotten is gone from the next scrape on, and so are ages and
// look-ahead of one that does not run: no alert stays behind.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/metrics/metrics.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

// Thread-safe.
class JobMetrics {
 public:
  // All ranks have reported an iteration; one that is done again after a failure counts again.
  void OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary);

  // Adds the families to the registry. Scrapes must end before the slot and this do.
  void Watch(MetricsRegistry* registry, const EngineSlot* engines);

 private:
  // Since this planner began to serve the job.
  struct Totals {
    double iterations = 0;
    double real_tokens = 0;
    double computed_tokens = 0;
    double measured_seconds = 0;
    double predicted_seconds = 0;
    double waited_for_program_seconds = 0;
    double planning_seconds = 0;
    // Iterations.
    std::map<uint32_t, double> by_strategy = {};
    double validation_seconds = 0;
    // Of the last validation; nothing: there was none.
    std::optional<double> validation_loss = {};
  };
  using Counted = double Totals::*;

  // Of the jobs that the planner holds; the others are forgotten here as well.
  MetricSamples SamplesOf(const PlannerEngine& engine, Counted counted, const MetricLabels& labels);
  MetricSamples StrategySamplesOf(const PlannerEngine& engine);
  MetricSamples ValidationLossesOf(const PlannerEngine& engine);
  // Those of jobs that the planner does not hold.
  void ForgetOthersLocked(const PlannerEngine& engine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchTotals(MetricsRegistry* registry, const EngineSlot* engines);

  Mutex mutex_;
  // By job id.
  std::map<std::string, Totals> totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
