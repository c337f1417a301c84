#include "planner/service/main/planner_metrics.h"

#include <map>
#include <utility>
#include <vector>

#include "common/grpc/status_conversion.h"
#include "planner/service/main/seconds.h"
#include "planner/service/main/state_name.h"

namespace penstock {
namespace {

// An edge at 50 ms: the objective for planning one batch.
std::vector<double> PlanningEdges() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
}

std::vector<double> CallEdges() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};
}

std::vector<double> IterationEdges() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100};
}

MetricSamples JobsByState(const PlannerEngine& engine) {
  std::map<std::string, int> counts;
  for (int state = v1::JOB_STATE_REGISTERED; state <= v1::JOB_STATE_PREPARING; ++state) {
    counts[StateName(static_cast<v1::JobState>(state))] = 0;
  }
  for (const auto& job : engine.Jobs()) ++counts[StateName(job->State())];
  MetricSamples samples;
  samples.reserve(counts.size());
  for (const auto& [state, count] : counts)
    samples.push_back({{{"state", state}}, static_cast<double>(count)});
  return samples;
}

MetricSamples JobsByOwner(const PlannerEngine& engine) {
  std::map<std::pair<std::string, bool>, int> counts;
  for (const JobPlace& place : engine.Places()) {
    if (!place.over) ++counts[{place.owner, place.started}];
  }
  MetricSamples samples;
  samples.reserve(counts.size());
  for (const auto& [key, count] : counts) {
    samples.push_back(
        {{{"owner", key.first}, {"started", key.second ? "yes" : "no"}}, static_cast<double>(count)});
  }
  return samples;
}

}  // namespace

PlannerMetrics::PlannerMetrics(MetricsRegistry* registry)
    : registry_(registry),
      plans_(registry->AddCounter("penstock_plans_total", "Plans asked for, by result.")),
      planning_seconds_(registry->AddHistogram("penstock_planning_seconds",
                                               "Time to plan and check one batch.", PlanningEdges())),
      iteration_seconds_(registry->AddHistogram("penstock_iteration_seconds",
                                                "Measured time of an iteration, of its slowest rank.",
                                                IterationEdges())),
      tokens_(registry->AddCounter("penstock_tokens_total",
                                   "Tokens of completed iterations: real, and computed with padding.")),
      program_wait_seconds_(registry->AddCounter("penstock_program_wait_seconds_total",
                                                 "Time that the slowest rank waited for its program.")),
      rpcs_(registry->AddCounter("penstock_rpcs_total", "Calls that ended, by method and code.")),
      rpc_seconds_(registry->AddHistogram("penstock_rpc_seconds",
                                          "Time of a call until its answer, streams left out.", CallEdges())),
      refused_rpcs_(registry->AddCounter("penstock_rpcs_refused_total",
                                         "Calls refused for who made them, by method and code.")),
      leader_changes_(registry->AddCounter("penstock_leader_changes_total",
                                           "Times that this planner began to lead, or ceased to.")) {
  // There from the start, so that the first refusal is an increase.
  for (const grpc::StatusCode code : {grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::PERMISSION_DENIED})
    refused_rpcs_.Increment({{"method", std::string(kOtherMethod)}, {"code", GrpcCodeName(code)}}, 0);
}

void PlannerMetrics::OnPlanned(const absl::Status& status, absl::Duration took) {
  plans_.Increment({{"result", GrpcCodeName(static_cast<grpc::StatusCode>(status.code()))}});
  planning_seconds_.Observe({}, absl::ToDoubleSeconds(took));
}

void PlannerMetrics::OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) {
  jobs_.OnIterationCompleted(job_id, summary);
  iteration_seconds_.Observe({}, Seconds(summary.measured_ns()));
  tokens_.Increment({{"kind", "real"}}, static_cast<double>(summary.real_tokens()));
  tokens_.Increment({{"kind", "computed"}}, static_cast<double>(summary.computed_tokens()));
  program_wait_seconds_.Increment({}, Seconds(summary.waited_for_program_ns()));
}

void PlannerMetrics::OnCall(const EndedCall& call) {
  const std::string method(call.method);
  rpcs_.Increment({{"method", method}, {"code", GrpcCodeName(call.code)}});
  // Of somebody else's job.
  if (call.code == grpc::StatusCode::PERMISSION_DENIED) OnRefused({.method = call.method, .code = call.code});
  if (!call.streams) rpc_seconds_.Observe({{"method", method}}, absl::ToDoubleSeconds(call.duration));
}

void PlannerMetrics::OnRefused(const RefusedCall& call) {
  refused_rpcs_.Increment({{"method", std::string(call.method)}, {"code", GrpcCodeName(call.code)}});
}

void PlannerMetrics::OnLeaderChange(bool leads) {
  leader_changes_.Increment({{"to", leads ? "leader" : "standby"}});
}

void PlannerMetrics::Watch(const EngineSlot* engines) {
  const auto add = [&](const char* name, const char* help, auto samples) {
    registry_->AddComputedGauge(name, help, [engines, samples] {
      const EnginePtr engine = engines->current();
      return engine != nullptr ? samples(*engine) : MetricSamples();
    });
  };
  registry_->AddComputedGauge("penstock_leader", "1: this planner serves jobs; 0: it is a standby.",
                              [engines] {
                                return MetricSamples{{{}, engines->leads() ? 1.0 : 0.0}};
                              });
  add("penstock_planning_queue_depth", "Batches that wait for a planning thread.",
      [](const PlannerEngine& engine) {
        return MetricSamples{{{}, static_cast<double>(engine.queue_depth())}};
      });
  add("penstock_store_writable", "1: what happens to jobs is written; 0: the store fails.",
      [](const PlannerEngine& engine) {
        return MetricSamples{{{}, engine.StoreHealth().ok() ? 1.0 : 0.0}};
      });
  add("penstock_store_waiting_bytes", "Changes that are not durable yet, in bytes.",
      [](const PlannerEngine& engine) {
        return MetricSamples{{{}, static_cast<double>(engine.StoreBacklog().bytes)}};
      });
  add("penstock_store_waiting_seconds", "How long the oldest change that is not durable yet has waited.",
      [](const PlannerEngine& engine) {
        return MetricSamples{{{}, absl::ToDoubleSeconds(engine.StoreBacklog().age)}};
      });
  add("penstock_stream_bytes", "Programs that streams hold and nobody has read, in bytes.",
      [](const PlannerEngine& engine) {
        return MetricSamples{{{}, static_cast<double>(engine.stream_bytes())}};
      });
  owners_.Watch(registry_, engines);
  add("penstock_owner_jobs", "Jobs of an owner that are not over, by whether anybody started them.",
      JobsByOwner);
  add("penstock_jobs", "Jobs that the planner holds, by state.", JobsByState);
  jobs_.Watch(registry_, engines);
}

}  // namespace penstock
