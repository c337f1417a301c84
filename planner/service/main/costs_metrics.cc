#include "planner/service/main/costs_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/service/main/job_samples.h"

namespace penstock {
namespace {

MetricSamples Versions(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs())
    samples.push_back({{{kJobLabel, job->id()}}, static_cast<double>(job->Status().costs_version())});
  return samples;
}

// Of jobs whose costs were fitted.
MetricSamples Errors(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!status.has_costs_errors()) continue;
    samples.push_back({{{kJobLabel, job->id()}, {"when", "before"}}, status.costs_errors().before()});
    samples.push_back({{{kJobLabel, job->id()}, {"when", "after"}}, status.costs_errors().after()});
  }
  return samples;
}

// Of slow ranks alone.
MetricSamples SlowFactors(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!Runs(status)) continue;
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (worker.slow_factor() > 0)
        samples.push_back(
            {{{kJobLabel, status.job_id()}, {"rank", absl::StrCat(worker.rank())}}, worker.slow_factor()});
    }
  }
  return samples;
}

MetricSamples SlowLinkFactors(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!Runs(status)) continue;
    for (const v1::SlowLink& link : status.slow_links())
      samples.push_back({{{kJobLabel, status.job_id()},
                          {"from", absl::StrCat(link.from())},
                          {"to", absl::StrCat(link.to())}},
                         link.factor()});
  }
  return samples;
}

MetricSamples ExpertLoads(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!Runs(status)) continue;
    for (const v1::ExpertLoad& load : status.expert_loads())
      samples.push_back(
          {{{kJobLabel, status.job_id()}, {"expert_ranks", absl::StrCat(load.ranks())}}, load.fullest()});
  }
  return samples;
}

}  // namespace

void WatchCosts(MetricsRegistry* registry, const EngineSlot* engines) {
  const auto add = [&](const char* name, const char* help, auto samples) {
    registry->AddComputedGauge(name, help, Watched(engines, std::move(samples)));
  };
  add("penstock_costs_version", "Version of the costs that a job's next iterations are planned with.",
      Versions);
  add("penstock_costs_error_ratio",
      "Mean of |predicted - measured| / measured of the iterations that a job's costs were fitted to, with "
      "the costs before the fit and with the fitted ones.",
      Errors);
  add("penstock_worker_slow_factor",
      "How many times as long as its peers a rank computes, by fitted costs: of slow ranks, of jobs that "
      "run.",
      SlowFactors);
  add("penstock_link_slow_factor",
      "How many times as long as over others of its kind transfers take over a link, by fitted costs: of "
      "slow links, of jobs that run.",
      SlowLinkFactors);
  add("penstock_expert_rank_load_ratio",
      "Rows of the fullest of the ranks that divide experts, over an even share, by fitted costs, of jobs "
      "that run. 1: routers are even.",
      ExpertLoads);
}

}  // namespace penstock
