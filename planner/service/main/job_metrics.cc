#include "planner/service/main/job_metrics.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/names/part_name.h"
#include "common/ratio/ratio.h"
#include "planner/service/main/costs_metrics.h"
#include "planner/service/main/job_samples.h"
#include "planner/service/main/seconds.h"
#include "planner/service/main/state_name.h"

namespace penstock {
namespace {

MetricSamples States(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs())
    samples.push_back({{{kJobLabel, job->id()}, {"state", StateName(job->State())}}, 1});
  return samples;
}

MetricSamples LookAhead(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!Runs(status)) continue;
    // Workers may have resumed from a checkpoint that is ahead of what is planned.
    const uint64_t planned = std::max(status.planned_iteration(), status.completed_iteration());
    samples.push_back(
        {{{kJobLabel, status.job_id()}}, static_cast<double>(planned - status.completed_iteration())});
  }
  return samples;
}

MetricSamples Epochs(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs())
    samples.push_back({{{kJobLabel, job->id()}}, static_cast<double>(job->Status().epoch())});
  return samples;
}

MetricSamples HeartbeatAges(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!Runs(status)) continue;
    for (const v1::WorkerStatus& worker : status.workers()) {
      constexpr double kMillisecondsPerSecond = 1e3;
      samples.push_back({{{kJobLabel, status.job_id()}, {"rank", absl::StrCat(worker.rank())}},
                         static_cast<double>(worker.heartbeat_age_ms()) / kMillisecondsPerSecond});
    }
  }
  return samples;
}

// Of many ranks the first: a label is no list of a thousand.
std::string RanksLabel(const v1::DiagnosedCause& cause) {
  constexpr int kMostRanks = 8;
  std::vector<std::string> ranks;
  for (int i = 0; i < std::min(cause.ranks_size(), kMostRanks); ++i)
    ranks.push_back(absl::StrCat(cause.ranks(i)));
  if (cause.ranks_size() > kMostRanks) ranks.emplace_back("...");
  return absl::StrJoin(ranks, ",");
}

MetricSamples CauseGains(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (!Runs(status)) continue;
    for (const v1::DiagnosedCause& cause : status.diagnosis().causes()) {
      samples.push_back(
          {{{kJobLabel, status.job_id()}, {"cause", cause.cause()}, {"ranks", RanksLabel(cause)}},
           cause.gain()});
    }
  }
  return samples;
}

// Of iterations that are planned from now on.
MetricSamples ActiveStrategySamples(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    for (const uint32_t strategy : job->StrategyNumbers())
      samples.push_back({{{kJobLabel, job->id()}, {"strategy", absl::StrCat(strategy)}}, 1});
  }
  return samples;
}

MetricSamples LengthDrifts(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const v1::JobStatus status = job->Status();
    if (status.has_length_drift()) samples.push_back({{{kJobLabel, job->id()}}, status.length_drift()});
  }
  return samples;
}

using OfSummary = std::function<double(const v1::IterationSummary&)>;

// Of the last iteration of each job.
std::function<MetricSamples(const PlannerEngine&)> OfLastIteration(OfSummary value) {
  return [value = std::move(value)](const PlannerEngine& engine) {
    MetricSamples samples;
    for (const auto& job : engine.Jobs()) {
      const auto summary = job->LastSummary();
      if (summary.has_value()) samples.push_back({{{kJobLabel, job->id()}}, value(*summary)});
    }
    return samples;
  };
}

// Of the tasks that the last iteration had samples of.
MetricSamples LossesByTask(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const auto summary = job->LastSummary();
    if (!summary.has_value()) continue;
    for (const v1::TaskLoss& task : summary->tasks()) {
      const auto index = static_cast<int>(task.task());
      if (task.weight() == 0 || index >= job->spec().tasks_size()) continue;
      samples.push_back({{{kJobLabel, job->id()}, {"task", job->spec().tasks(index)}}, task.loss()});
    }
  }
  return samples;
}

MetricSamples PartNorms(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const auto summary = job->LastSummary();
    if (!summary.has_value()) continue;
    for (const v1::PartNorm& part : summary->part_norms())
      samples.push_back({{{kJobLabel, job->id()}, {"part", PartName(part.part())}}, part.norm()});
  }
  return samples;
}

// Series of a job are twice as many at most; no model that anybody trains has more layers.
constexpr int kMostLayerSamples = 256;

// Of the last iteration of each job whose workers count rows.
MetricSamples ExpertLayerLoads(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const auto summary = job->LastSummary();
    if (!summary.has_value()) continue;
    for (int i = 0; i < std::min(summary->expert_layers_size(), kMostLayerSamples); ++i) {
      const v1::ExpertLayerLoad& load = summary->expert_layers(i);
      const auto add = [&](const char* of, double ratio) {
        if (ratio > 0)
          samples.push_back(
              {{{kJobLabel, job->id()}, {"layer", absl::StrCat(load.layer())}, {"of", of}}, ratio});
      };
      add("rank", load.fullest_rank());
      add("expert", load.fullest_expert());
    }
  }
  return samples;
}

// Of models whose experts have a capacity.
MetricSamples DroppedExpertRows(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const auto summary = job->LastSummary();
    if (!summary.has_value() || summary->routed_expert_rows() == 0) continue;
    samples.push_back({{{kJobLabel, job->id()}},
                       Ratio(static_cast<double>(summary->dropped_expert_rows()),
                             static_cast<double>(summary->routed_expert_rows()))});
  }
  return samples;
}

double PaddingEfficiency(const v1::IterationSummary& summary) {
  return Ratio(static_cast<double>(summary.real_tokens()), static_cast<double>(summary.computed_tokens()));
}

double PredictionError(const v1::IterationSummary& summary) {
  return Ratio(static_cast<double>(summary.measured_ns() - summary.predicted_ns()),
               static_cast<double>(summary.predicted_ns()));
}

MetricSamples Bubbles(const PlannerEngine& engine) {
  MetricSamples samples;
  for (const auto& job : engine.Jobs()) {
    const auto summary = job->LastSummary();
    if (!summary.has_value()) continue;
    samples.push_back({{{kJobLabel, job->id()}, {"kind", "measured"}}, summary->bubble()});
    samples.push_back({{{kJobLabel, job->id()}, {"kind", "predicted"}}, summary->predicted_bubble()});
  }
  return samples;
}

}  // namespace

void JobMetrics::OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) {
  MutexLock lock(&mutex_);
  Totals& totals = totals_[job_id];
  ++totals.iterations;
  totals.real_tokens += static_cast<double>(summary.real_tokens());
  totals.computed_tokens += static_cast<double>(summary.computed_tokens());
  totals.measured_seconds += Seconds(summary.measured_ns());
  totals.predicted_seconds += Seconds(summary.predicted_ns());
  totals.waited_for_program_seconds += Seconds(summary.waited_for_program_ns());
  totals.planning_seconds += Seconds(summary.planning_time_ns());
  ++totals.by_strategy[summary.strategy()];
  if (!summary.has_validation()) return;
  totals.validation_seconds += Seconds(summary.validation().measured_ns());
  totals.validation_loss = summary.validation().loss();
}

void JobMetrics::ForgetOthersLocked(const PlannerEngine& engine) {
  std::set<std::string> held;
  for (const auto& job : engine.Jobs()) held.insert(job->id());
  std::erase_if(totals_, [&](const auto& entry) { return !held.contains(entry.first); });
}

MetricSamples JobMetrics::StrategySamplesOf(const PlannerEngine& engine) {
  MutexLock lock(&mutex_);
  ForgetOthersLocked(engine);
  MetricSamples samples;
  for (const auto& [job_id, totals] : totals_) {
    for (const auto& [strategy, iterations] : totals.by_strategy)
      samples.push_back({{{kJobLabel, job_id}, {"strategy", absl::StrCat(strategy)}}, iterations});
  }
  return samples;
}

MetricSamples JobMetrics::SamplesOf(const PlannerEngine& engine, Counted counted,
                                    const MetricLabels& labels) {
  MutexLock lock(&mutex_);
  ForgetOthersLocked(engine);
  MetricSamples samples;
  for (const auto& [job_id, totals] : totals_) {
    MetricLabels all = labels;
    all[kJobLabel] = job_id;
    samples.push_back({std::move(all), totals.*counted});
  }
  return samples;
}

MetricSamples JobMetrics::ValidationLossesOf(const PlannerEngine& engine) {
  MutexLock lock(&mutex_);
  ForgetOthersLocked(engine);
  MetricSamples samples;
  for (const auto& [job_id, totals] : totals_)
    if (totals.validation_loss.has_value())
      samples.push_back({{{kJobLabel, job_id}}, *totals.validation_loss});
  return samples;
}

void JobMetrics::WatchTotals(MetricsRegistry* registry, const EngineSlot* engines) {
  using Parts = std::vector<std::pair<MetricLabels, Counted>>;
  const auto add = [&](const char* name, const char* help, Parts parts) {
    registry->AddComputedCounter(
        name, help, Watched(engines, [this, parts = std::move(parts)](const PlannerEngine& engine) {
          MetricSamples samples;
          for (const auto& [labels, counted] : parts)
            for (MetricSample& sample : SamplesOf(engine, counted, labels))
              samples.push_back(std::move(sample));
          return samples;
        }));
  };
  add("penstock_job_iterations_total", "Iterations of a job that all its ranks have reported.",
      {{{}, &Totals::iterations}});
  registry->AddComputedCounter(
      "penstock_job_strategy_iterations_total",
      "The same by strategy, the number of one of the job's; 0 where it has none.",
      Watched(engines, [this](const PlannerEngine& engine) { return StrategySamplesOf(engine); }));
  add("penstock_job_tokens_total", "Tokens of a job: real, and computed with padding.",
      {{{{"kind", "real"}}, &Totals::real_tokens}, {{{"kind", "computed"}}, &Totals::computed_tokens}});
  add("penstock_job_iteration_seconds_total",
      "Time of a job's iterations: measured, of the slowest rank, and predicted by their plans.",
      {{{{"kind", "measured"}}, &Totals::measured_seconds},
       {{{"kind", "predicted"}}, &Totals::predicted_seconds}});
  add("penstock_job_program_wait_seconds_total",
      "Time that the slowest rank of a job waited for its programs.",
      {{{}, &Totals::waited_for_program_seconds}});
  add("penstock_job_planning_seconds_total", "Time that the plans of a job's completed iterations took.",
      {{{}, &Totals::planning_seconds}});
  add("penstock_job_validation_seconds_total",
      "Time of a job's validations on its ranks, of the slowest rank: not part of its iterations.",
      {{{}, &Totals::validation_seconds}});
  registry->AddComputedGauge(
      "penstock_validation_loss",
      "Loss of a job's last validation on its ranks. Jobs that have one since the planner serves them.",
      Watched(engines, [this](const PlannerEngine& engine) { return ValidationLossesOf(engine); }));
}

void JobMetrics::Watch(MetricsRegistry* registry, const EngineSlot* engines) {
  const auto add = [&](const char* name, const char* help, auto samples) {
    registry->AddComputedGauge(name, help, Watched(engines, std::move(samples)));
  };
  add("penstock_job_state", "1 at the state that a job is in.", States);
  add("penstock_job_epoch", "Epochs of a job so far: one more each time that its workers began again.",
      Epochs);
  add("penstock_look_ahead_iterations",
      "Iterations planned beyond what the slowest rank has reported, of jobs that run.", LookAhead);
  add("penstock_worker_heartbeat_age_seconds", "Time since the last heartbeat of a worker, of jobs that run.",
      HeartbeatAges);
  add("penstock_cause_gain_ratio",
      "Share of the time of a job's last iterations that mending a cause would save, by replay, of jobs that "
      "run.",
      CauseGains);
  add("penstock_length_drift_ratio",
      "Share of the tokens of a job's last batches in samples of other lengths than those that its stages "
      "and strategies were chosen for.",
      LengthDrifts);
  add("penstock_job_active_strategy",
      "1 for each strategy that a job's next iterations may run on; of jobs with strategies.",
      ActiveStrategySamples);
  add("penstock_expert_layer_load_ratio",
      "Rows of a layer's fullest expert, or of the fullest of the ranks that divide its experts, over the "
      "mean, in a job's last iteration. 1: its router is even. Of 256 layers with experts at most.",
      ExpertLayerLoads);
  add("penstock_dropped_expert_rows_ratio",
      "Rows of tokens that experts had no room for in a job's last iteration, over all: of models with a "
      "capacity of experts.",
      DroppedExpertRows);
  add("penstock_loss", "Loss of a job's last iteration.",
      OfLastIteration([](const auto& summary) { return summary.loss(); }));
  add("penstock_task_loss",
      "Loss of a job's last iteration by task: of those whose samples it had. Jobs of several tasks alone.",
      LossesByTask);
  add("penstock_gradient_norm", "Norm of the gradient of a job's last iteration, before clipping.",
      OfLastIteration([](const auto& summary) { return summary.gradient_norm(); }));
  add("penstock_part_gradient_norm",
      "The same by part of the model: embedding, attention, feed_forward, experts, router, norms, head.",
      PartNorms);
  add("penstock_learning_rate", "Learning rate of a job's last iteration.",
      OfLastIteration([](const auto& summary) { return summary.learning_rate(); }));
  add("penstock_padding_efficiency_ratio", "Real tokens / computed tokens of the last iteration.",
      OfLastIteration(PaddingEfficiency));
  add("penstock_prediction_error_ratio", "(measured - predicted) / predicted time of the last iteration.",
      OfLastIteration(PredictionError));
  add("penstock_bubble_ratio", "Share of the ranks' time without computation in the last iteration.",
      Bubbles);
  WatchTotals(registry, engines);
  WatchCosts(registry, engines);
}

}  // namespace penstock
