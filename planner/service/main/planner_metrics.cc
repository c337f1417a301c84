#include "planner/service/main/planner_metrics.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grpc/status_conversion.h"

namespace penstock {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

// An edge at 50 ms: the objective for planning one batch.
std::vector<double> PlanningEdges() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
}

std::vector<double> IterationEdges() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100};
}

// "RUNNING" for JOB_STATE_RUNNING.
std::string StateName(v1::JobState state) {
  constexpr size_t kPrefix = sizeof("JOB_STATE_") - 1;
  return v1::JobState_Name(state).substr(kPrefix);
}

std::vector<GaugeSample> JobsByState(const PlannerEngine& engine) {
  std::map<std::string, int> counts;
  for (int state = v1::JOB_STATE_REGISTERED; state <= v1::JOB_STATE_PREPARING; ++state) {
    counts[StateName(static_cast<v1::JobState>(state))] = 0;
  }
  for (const auto& job : engine.Jobs()) ++counts[StateName(job->State())];
  std::vector<GaugeSample> samples;
  samples.reserve(counts.size());
  for (const auto& [state, count] : counts)
    samples.push_back({{{"state", state}}, static_cast<double>(count)});
  return samples;
}

std::vector<GaugeSample> LookAhead(const PlannerEngine& engine) {
  std::vector<GaugeSample> samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    // Workers may have resumed from a checkpoint that is ahead of what is planned.
    const uint64_t planned = std::max(status.planned_iteration(), status.completed_iteration());
    samples.push_back(
        {{{"job", status.job_id()}}, static_cast<double>(planned - status.completed_iteration())});
  }
  return samples;
}

std::vector<GaugeSample> Epochs(const PlannerEngine& engine) {
  std::vector<GaugeSample> samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    samples.push_back({{{"job", status.job_id()}}, static_cast<double>(status.epoch())});
  }
  return samples;
}

std::vector<GaugeSample> HeartbeatAges(const PlannerEngine& engine) {
  std::vector<GaugeSample> samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    for (const v1::WorkerStatus& worker : status.workers()) {
      samples.push_back({{{"job", status.job_id()}, {"rank", absl::StrCat(worker.rank())}},
                         static_cast<double>(worker.heartbeat_age_ms()) / 1e3});
    }
  }
  return samples;
}

// A gauge of the last iteration of each job.
template <typename Value>
std::vector<GaugeSample> OfLastIteration(const PlannerEngine& engine, const MetricLabels& labels,
                                         Value value) {
  std::vector<GaugeSample> samples;
  for (const auto& job : engine.Jobs()) {
    const auto summary = job->LastSummary();
    if (!summary.has_value()) continue;
    MetricLabels all = labels;
    all["job"] = job->spec().job_id();
    samples.push_back({std::move(all), value(*summary)});
  }
  return samples;
}

double Ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

double PaddingEfficiency(const v1::IterationSummary& summary) {
  return Ratio(summary.real_tokens(), summary.computed_tokens());
}

double PredictionError(const v1::IterationSummary& summary) {
  return Ratio(summary.measured_ns() - summary.predicted_ns(), summary.predicted_ns());
}

std::vector<GaugeSample> Bubbles(const PlannerEngine& engine) {
  auto samples = OfLastIteration(engine, {{"kind", "measured"}}, [](const auto& s) { return s.bubble(); });
  for (GaugeSample& sample :
       OfLastIteration(engine, {{"kind", "predicted"}}, [](const auto& s) { return s.predicted_bubble(); })) {
    samples.push_back(std::move(sample));
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
      leader_changes_(registry->AddCounter("penstock_leader_changes_total",
                                           "Times that this planner began to lead, or ceased to.")) {}

void PlannerMetrics::OnPlanned(const absl::Status& status, absl::Duration took) {
  plans_.Increment({{"result", GrpcCodeName(static_cast<grpc::StatusCode>(status.code()))}});
  planning_seconds_.Observe({}, absl::ToDoubleSeconds(took));
}

void PlannerMetrics::OnIterationCompleted(const std::string&, const v1::IterationSummary& summary) {
  iteration_seconds_.Observe({}, static_cast<double>(summary.measured_ns()) / kNanosecondsPerSecond);
  tokens_.Increment({{"kind", "real"}}, static_cast<double>(summary.real_tokens()));
  tokens_.Increment({{"kind", "computed"}}, static_cast<double>(summary.computed_tokens()));
  program_wait_seconds_.Increment(
      {}, static_cast<double>(summary.waited_for_program_ns()) / kNanosecondsPerSecond);
}

void PlannerMetrics::OnRpc(const char* method, grpc::StatusCode code) {
  rpcs_.Increment({{"method", method}, {"code", GrpcCodeName(code)}});
}

void PlannerMetrics::OnLeaderChange(bool leads) {
  leader_changes_.Increment({{"to", leads ? "leader" : "standby"}});
}

void PlannerMetrics::Watch(const EngineSlot* engines) {
  const auto add = [&](const char* name, const char* help, auto samples) {
    registry_->AddComputedGauge(name, help, [engines, samples] {
      const EnginePtr engine = engines->current();
      return engine != nullptr ? samples(*engine) : std::vector<GaugeSample>();
    });
  };
  registry_->AddComputedGauge("penstock_leader", "1: this planner serves jobs; 0: it is a standby.",
                              [engines] {
                                return std::vector<GaugeSample>{{{}, engines->leads() ? 1.0 : 0.0}};
                              });
  add("penstock_planning_queue_depth", "Batches that wait for a planning thread.",
      [](const PlannerEngine& engine) {
        return std::vector<GaugeSample>{{{}, static_cast<double>(engine.queue_depth())}};
      });
  add("penstock_jobs", "Jobs that the planner holds, by state.", JobsByState);
  add("penstock_look_ahead_iterations", "Iterations planned beyond what the slowest rank has reported.",
      LookAhead);
  add("penstock_job_epoch", "Epochs of a job so far: one more each time that its workers began again.",
      Epochs);
  add("penstock_worker_heartbeat_age_seconds", "Time since the last heartbeat of a worker.", HeartbeatAges);
  add("penstock_padding_efficiency_ratio", "Real tokens / computed tokens of the last iteration.",
      [](const PlannerEngine& engine) { return OfLastIteration(engine, {}, PaddingEfficiency); });
  add("penstock_prediction_error_ratio", "(measured - predicted) / predicted time of the last iteration.",
      [](const PlannerEngine& engine) { return OfLastIteration(engine, {}, PredictionError); });
  add("penstock_bubble_ratio", "Share of the ranks' time without computation in the last iteration.",
      Bubbles);
}

}  // namespace penstock
