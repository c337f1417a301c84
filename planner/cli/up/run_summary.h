// What a run looks like to its user: a line for each iteration, a table at the end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/task_counts.h"

namespace penstock::cli {

// Simulated workers learn nothing: their runs have times and no loss.
enum class RunKind : uint8_t { kTraining, kSimulated };

// "iteration 12/150  loss 4.213  9,120 tokens/s  padding efficiency 97 %  bubble 18 %  planned ahead 15"
// `last` is the number of the last iteration, for display. A simulated run has "3931.4 ms, planned 3920.0 ms"
// in place of the loss.
std::string ProgressLine(const v1::IterationSummary& iteration, uint64_t last,
                         RunKind kind = RunKind::kTraining);

// Its batch had no position with a loss, so that no parameter changed.
inline bool LearntNothing(const v1::IterationSummary& iteration) {
  return iteration.loss_tokens() == 0 && iteration.loss() == 0;
}

// Real ones, of a measured iteration; 0 of one that has no time.
double TokensPerSecond(const v1::IterationSummary& iteration);

// Figures over the iterations of a run.
struct RunSummary {
  RunKind kind = RunKind::kTraining;
  // "cpu", "cuda:0..3", "simulated".
  std::string device = "cpu";
  uint64_t iterations = 0;
  // Of them: those whose batch had nothing to learn; they are not among the losses.
  uint64_t without_loss = 0;
  // Iterations by strategy.
  std::map<uint32_t, uint64_t> strategies = {};
  double first_loss = 0;
  double last_loss = 0;
  // Mean over iterations after the first (which includes warm-up of the machine); of all when there is only
  // one.
  double tokens_per_second = 0;
  double padding_efficiency = 0;
  double bubble = 0;
  double predicted_bubble = 0;
  double planning_ms = 0;
  double planned_iteration_ms = 0;
  double measured_iteration_ms = 0;
  // Mean of |measured - planned| / measured.
  double prediction_error = 0;
  // The same of the last half of the iterations, whose plans know what was measured before.
  double late_prediction_error = 0;
  // Of a mixture: of all iterations; losses are those of the last one that learnt something of the task.
  std::vector<TaskCounts> tasks = {};
  // Longest time a rank waited for its program, after the first iteration.
  double waited_for_plan_ms = 0;
  // Of the rank that takes most, in the last iteration; 0: not known.
  int64_t planned_peak_bytes = 0;
  int64_t measured_peak_bytes = 0;
};

// Possible input: any number of iterations, ascending.
RunSummary Summarize(const std::vector<v1::IterationSummary>& iterations);

// Adds the memory of an iteration. `measured` may lack reports.
void AddPeaks(const v1::GetIterationResponse& measured, RunSummary& summary);

// Where the run left things; empty where there is nothing.
struct RunArtifacts {
  std::string run_dir;
  std::string checkpoint;
  std::string trace;
  // The model of the least validation loss.
  std::string best = {};
  std::optional<double> best_validation_loss = {};
};

// A table of two columns, for people.
std::string SummaryTable(const RunSummary& summary, const RunArtifacts& artifacts);
// The same for machines: one JSON object.
std::string SummaryJson(const RunSummary& summary, const RunArtifacts& artifacts);

}  // namespace penstock::cli
