#include "planner/service/main/owner_metrics.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace penstock {
namespace {

// By PlanningClass.
constexpr const char* kKinds[kPlanningClasses] = {"batch", "preparation", "what_if"};

// `add` appends what an owner's use says; nothing where no engine serves.
MetricsRegistry::Sample OfEachOwner(const EngineSlot* engines,
                                    std::function<void(const OwnerUse&, MetricSamples*)> add) {
  return [engines, add = std::move(add)] {
    MetricSamples samples;
    const EnginePtr engine = engines->current();
    if (engine == nullptr) return samples;
    for (const OwnerUse& use : engine->OwnerUses()) add(use, &samples);
    return samples;
  };
}

void PlanningOf(const OwnerUse& use, MetricSamples* samples) {
  for (size_t kind = 0; kind < kPlanningClasses; ++kind) {
    samples->push_back(
        {{{"owner", use.owner}, {"kind", kKinds[kind]}}, absl::ToDoubleSeconds(use.planning[kind])});
  }
}

void RefusalsOf(const OwnerUse& use, MetricSamples* samples) {
  for (size_t quota = 0; quota < kOwnerQuotas; ++quota) {
    samples->push_back({{{"owner", use.owner}, {"quota", std::string(kQuotaNames[quota])}},
                        static_cast<double>(use.refused[quota])});
  }
}

}  // namespace

void OwnerMetrics::Watch(MetricsRegistry* registry, const EngineSlot* engines) {
  registry->AddComputedCounter("penstock_owner_planning_seconds_total",
                               "What planning threads computed for an owner, in seconds of a core.",
                               OfEachOwner(engines, PlanningOf));
  registry->AddComputedCounter(
      "penstock_owner_samples_total", "Samples of an owner that were accepted, in batches and what-ifs.",
      OfEachOwner(engines, [](const OwnerUse& use, MetricSamples* samples) {
        samples->push_back({{{"owner", use.owner}}, static_cast<double>(use.samples)});
      }));
  registry->AddComputedCounter("penstock_owner_refusals_total", "Calls that a quota of an owner refused.",
                               OfEachOwner(engines, RefusalsOf));
  registry->AddComputedGauge("penstock_owner_streams", "Streams of programs that an owner has open.",
                             OfEachOwner(engines, [](const OwnerUse& use, MetricSamples* samples) {
                               samples->push_back({{{"owner", use.owner}}, static_cast<double>(use.streams)});
                             }));
}

}  // namespace penstock
