#include "planner/cli/up/run_summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

double PaddingEfficiency(uint64_t real_tokens, uint64_t computed_tokens) {
  return computed_tokens == 0 ? 0 : static_cast<double>(real_tokens) / static_cast<double>(computed_tokens);
}

double TokensPerSecond(uint64_t tokens, int64_t nanoseconds) {
  return nanoseconds <= 0
             ? 0
             : static_cast<double>(tokens) * kNanosecondsPerSecond / static_cast<double>(nanoseconds);
}

struct Sums {
  uint64_t real_tokens = 0;
  uint64_t computed_tokens = 0;
  int64_t measured_ns = 0;
  int64_t predicted_ns = 0;
  int64_t planning_ns = 0;
  int64_t waited_ns = 0;
  double bubble = 0;
  double predicted_bubble = 0;
  double error = 0;
};

void Add(const v1::IterationSummary& iteration, Sums& sums) {
  sums.real_tokens += iteration.real_tokens();
  sums.computed_tokens += iteration.computed_tokens();
  sums.measured_ns += iteration.measured_ns();
  sums.predicted_ns += iteration.predicted_ns();
  sums.planning_ns += iteration.planning_time_ns();
  sums.waited_ns = std::max(sums.waited_ns, iteration.waited_for_program_ns());
  sums.bubble += iteration.bubble();
  sums.predicted_bubble += iteration.predicted_bubble();
  if (iteration.measured_ns() > 0) {
    sums.error += std::abs(static_cast<double>(iteration.measured_ns() - iteration.predicted_ns())) /
                  static_cast<double>(iteration.measured_ns());
  }
}

// "loss 2.7113; 70.1 % of the samples, 55.2 % of the tokens: 1,120 samples, 503,101 tokens, 240,877 learnt".
std::string TaskText(const TaskCounts& task, const TaskCounts& all) {
  const auto percent = [](uint64_t part, uint64_t whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(1, whole));
  };
  const auto count = [](uint64_t number) { return WithThousands(static_cast<double>(number)); };
  const std::string loss = task.loss.has_value() ? absl::StrFormat("loss %.4f; ", *task.loss) : "";
  return absl::StrFormat("%s%.1f %% of the samples, %.1f %% of the tokens: %s samples, %s tokens, %s learnt",
                         loss, percent(task.samples, all.samples), percent(task.tokens, all.tokens),
                         count(task.samples), count(task.tokens), count(task.loss_tokens));
}

TaskCounts SumOf(const std::vector<TaskCounts>& tasks) {
  std::vector<TaskCounts> sum(1);
  for (const TaskCounts& task : tasks) AddCounts({task}, sum);
  return sum.front();
}

}  // namespace

double TokensPerSecond(const v1::IterationSummary& iteration) {
  return TokensPerSecond(iteration.real_tokens(), iteration.measured_ns());
}

std::string ProgressLine(const v1::IterationSummary& iteration, uint64_t last, RunKind kind) {
  const std::string outcome =
      kind == RunKind::kSimulated
          ? absl::StrFormat("%.1f ms, planned %.1f ms", Milliseconds(iteration.measured_ns()),
                            Milliseconds(iteration.predicted_ns()))
      : LearntNothing(iteration) ? "nothing to learn"
                                 : absl::StrFormat("loss %.3f", iteration.loss());
  return absl::StrFormat(
      "iteration %d/%d  %s  %s tokens/s  padding efficiency %.0f %%  bubble %.0f %%  planned ahead %d",
      iteration.iteration(), last, outcome, WithThousands(TokensPerSecond(iteration)),
      100 * PaddingEfficiency(iteration.real_tokens(), iteration.computed_tokens()), 100 * iteration.bubble(),
      iteration.planned_ahead());
}

RunSummary Summarize(const std::vector<v1::IterationSummary>& iterations) {
  RunSummary summary;
  if (iterations.empty()) return summary;
  const size_t skipped = iterations.size() > 1 ? 1 : 0;
  Sums sums;
  for (size_t i = skipped; i < iterations.size(); ++i) Add(iterations[i], sums);
  const double count = static_cast<double>(iterations.size() - skipped);
  summary.iterations = iterations.size();
  for (const v1::IterationSummary& iteration : iterations) {
    ++summary.strategies[iteration.strategy()];
    if (LearntNothing(iteration)) {
      ++summary.without_loss;
      continue;
    }
    if (summary.first_loss == 0) summary.first_loss = iteration.loss();
    summary.last_loss = iteration.loss();
  }
  summary.tokens_per_second = TokensPerSecond(sums.real_tokens, sums.measured_ns);
  summary.padding_efficiency = PaddingEfficiency(sums.real_tokens, sums.computed_tokens);
  summary.bubble = sums.bubble / count;
  summary.predicted_bubble = sums.predicted_bubble / count;
  summary.planning_ms = static_cast<double>(sums.planning_ns) / count / kNanosecondsPerMillisecond;
  summary.planned_iteration_ms = static_cast<double>(sums.predicted_ns) / count / kNanosecondsPerMillisecond;
  summary.measured_iteration_ms = static_cast<double>(sums.measured_ns) / count / kNanosecondsPerMillisecond;
  summary.prediction_error = sums.error / count;
  Sums late;
  const size_t half = std::max(skipped, iterations.size() / 2);
  for (size_t i = half; i < iterations.size(); ++i) Add(iterations[i], late);
  summary.late_prediction_error = late.error / static_cast<double>(iterations.size() - half);
  summary.waited_for_plan_ms = Milliseconds(sums.waited_ns);
  return summary;
}

void AddPeaks(const v1::GetIterationResponse& measured, RunSummary& summary) {
  for (const v1::RankPrediction& rank : measured.plan().predicted().ranks())
    summary.planned_peak_bytes = std::max(summary.planned_peak_bytes, rank.peak_memory_bytes());
  for (const v1::ReportIterationRequest& report : measured.reports())
    summary.measured_peak_bytes = std::max(summary.measured_peak_bytes, report.peak_memory_bytes());
}

namespace {

// "0: 12, 2: 18"
std::string StrategyCounts(const RunSummary& summary) {
  return absl::StrJoin(summary.strategies, ", ", absl::PairFormatter(": "));
}

nlohmann::ordered_json CountsAsJson(const std::map<uint32_t, uint64_t>& strategies) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [strategy, iterations] : strategies) json[absl::StrCat(strategy)] = iterations;
  return json;
}

}  // namespace

std::string SummaryTable(const RunSummary& summary, const RunArtifacts& artifacts) {
  std::string table;
  const auto row = [&table](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppendFormat(&table, "  %-30s %s\n", name, value);
  };
  row("iterations", absl::StrCat(summary.iterations));
  if (summary.strategies.size() > 1) row("iterations by strategy", StrategyCounts(summary));
  if (summary.kind == RunKind::kSimulated) {
    row("device", "simulated: times are simulated, nothing was trained");
  } else {
    row("device", summary.device == "cpu" ? "" : summary.device);
    row("loss, first to last", absl::StrFormat("%.4f -> %.4f", summary.first_loss, summary.last_loss));
    row("batches with nothing to learn",
        summary.without_loss == 0 ? "" : absl::StrCat(summary.without_loss, ": no parameter changed"));
  }
  row("tokens/s", WithThousands(summary.tokens_per_second));
  const TaskCounts all = SumOf(summary.tasks);
  for (const TaskCounts& task : summary.tasks)
    row(absl::StrCat("task ", task.task).c_str(), TaskText(task, all));
  row("padding efficiency", absl::StrFormat("%.1f %%", 100 * summary.padding_efficiency));
  row("bubble, planned / measured",
      absl::StrFormat("%.1f %% / %.1f %%", 100 * summary.predicted_bubble, 100 * summary.bubble));
  row("iteration, planned / measured",
      absl::StrFormat("%.1f ms / %.1f ms", summary.planned_iteration_ms, summary.measured_iteration_ms));
  row("mean prediction error",
      absl::StrFormat("%.1f %%; %.1f %% in the last half", 100 * summary.prediction_error,
                      100 * summary.late_prediction_error));
  row("memory, planned / measured",
      summary.measured_peak_bytes == 0
          ? ""
          : absl::StrFormat("%s MB / %s MB", WithThousands(Megabytes(summary.planned_peak_bytes)),
                            WithThousands(Megabytes(summary.measured_peak_bytes))));
  row("planning an iteration", absl::StrFormat("%.1f ms, ahead of time", summary.planning_ms));
  row("ranks waited for a plan",
      absl::StrFormat("%.3f ms (after the first iteration)", summary.waited_for_plan_ms));
  if (artifacts.best_validation_loss.has_value())
    row("validation loss, best",
        absl::StrFormat("%.4f (%s)", *artifacts.best_validation_loss,
                        artifacts.best.empty() ? "of parameters that no checkpoint has" : artifacts.best));
  row("checkpoint", artifacts.checkpoint);
  row("trace (open in Perfetto)", artifacts.trace);
  row("run folder", artifacts.run_dir);
  return table;
}

std::string SummaryJson(const RunSummary& summary, const RunArtifacts& artifacts) {
  const bool simulated = summary.kind == RunKind::kSimulated;
  const nlohmann::ordered_json no_loss = nullptr;
  nlohmann::ordered_json json = {
      {"device", simulated ? "simulated" : summary.device},
      {"iterations", summary.iterations},
      {"iterations_by_strategy", CountsAsJson(summary.strategies)},
      {"batches_with_nothing_to_learn", summary.without_loss},
      {"first_loss", simulated ? no_loss : nlohmann::ordered_json(summary.first_loss)},
      {"last_loss", simulated ? no_loss : nlohmann::ordered_json(summary.last_loss)},
      {"tokens_per_second", summary.tokens_per_second},
      {"padding_efficiency", summary.padding_efficiency},
      {"bubble", summary.bubble},
      {"predicted_bubble", summary.predicted_bubble},
      {"planning_ms", summary.planning_ms},
      {"planned_iteration_ms", summary.planned_iteration_ms},
      {"measured_iteration_ms", summary.measured_iteration_ms},
      {"prediction_error", summary.prediction_error},
      {"late_prediction_error", summary.late_prediction_error},
      {"waited_for_plan_ms", summary.waited_for_plan_ms},
      {"planned_peak_bytes", summary.planned_peak_bytes},
      {"measured_peak_bytes", summary.measured_peak_bytes},
      {"best_validation_loss", artifacts.best_validation_loss.has_value()
                                   ? nlohmann::ordered_json(*artifacts.best_validation_loss)
                                   : no_loss},
      {"best", artifacts.best},
      {"checkpoint", artifacts.checkpoint},
      {"trace", artifacts.trace},
      {"run_dir", artifacts.run_dir},
  };
  if (!summary.tasks.empty()) json["tasks"] = ToJson(summary.tasks);
  return json.dump();
}

}  // namespace penstock::cli
