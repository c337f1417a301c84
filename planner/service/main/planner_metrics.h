// The planner's metrics. Counters and histograms are fed as things happen; gauges are read from the engine at
// each scrape.
//
// Labels stay few: `training_job` only of jobs that the planner holds (job_metrics.h), `rank` within a job,
// `owner` of a hundred at most (owner_metrics.h), `method`, `code`, `state`.
#pragma once

#include <string>

#include "common/grpc/call_observer.h"
#include "common/grpc/security/server_security.h"
#include "common/metrics/metrics.h"
#include "planner/service/engine/observer.h"
#include "planner/service/main/job_metrics.h"
#include "planner/service/main/owner_metrics.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

class PlannerMetrics final : public EngineObserver {
 public:
  // `registry` is not owned and must outlive this.
  explicit PlannerMetrics(MetricsRegistry* registry);

  void OnPlanned(const absl::Status& status, absl::Duration took) override;
  void OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) override;
  void OnCall(const EndedCall& call);
  // Before it reached a handler.
  void OnRefused(const RefusedCall& call);

  // This planner began to lead, or ceased to.
  void OnLeaderChange(bool leads);

  // Adds the gauges of the engine that serves. Scrapes must end before the slot does.
  void Watch(const EngineSlot* engines);

 private:
  MetricsRegistry* const registry_;
  const CounterFamily plans_;
  const HistogramFamily planning_seconds_;
  const HistogramFamily iteration_seconds_;
  const CounterFamily tokens_;
  const CounterFamily program_wait_seconds_;
  const CounterFamily rpcs_;
  const HistogramFamily rpc_seconds_;
  const CounterFamily refused_rpcs_;
  const CounterFamily leader_changes_;
  JobMetrics jobs_;
  OwnerMetrics owners_;
};

}  // namespace penstock
