// What families of metrics that are read from the jobs of an engine have in common.
#pragma once

#include <functional>
#include <utility>

#include "common/metrics/metrics.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

inline constexpr char kJobLabel[] = "training_job";

inline bool Runs(const v1::JobStatus& status) {
  return status.state() == v1::JOB_STATE_RUNNING || status.state() == v1::JOB_STATE_DRAINING;
}

// `samples` of the engine that serves; nothing where none does.
inline MetricsRegistry::Sample Watched(const EngineSlot* engines,
                                       std::function<MetricSamples(const PlannerEngine&)> samples) {
  return [engines, samples = std::move(samples)] {
    const EnginePtr engine = engines->current();
    return engine != nullptr ? samples(*engine) : MetricSamples();
  };
}

}  // namespace penstock
